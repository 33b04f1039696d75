"""State of the whole process.

``interrupts`` keeps Ctrl-C from leaving contexts half entered. ``torch_generator`` and ``generators`` replace the
global random generators for code that draws from these. ``forks`` is about processes that other threads fork.
"""

from geh_explain._process.forks import cached_property as cached_property
from geh_explain._process.generators import OwnGenerators as OwnGenerators
from geh_explain._process.generators import OwnStates as OwnStates
from geh_explain._process.generators import other_threads_draw as other_threads_draw
from geh_explain._process.generators import seeded_generators as seeded_generators
from geh_explain._process.interrupts import SafeContext as SafeContext
from geh_explain._process.interrupts import defer_interrupt as defer_interrupt
from geh_explain._process.interrupts import raise_waiting_interrupt as raise_waiting_interrupt
from geh_explain._process.interrupts import safe_contextmanager as safe_contextmanager
from geh_explain._process.torch_generator import OwnTorchGenerator as OwnTorchGenerator
from geh_explain._process.torch_generator import draws_are_redirected as draws_are_redirected

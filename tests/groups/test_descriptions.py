"""Groups of points in words."""

import numpy as np
import pytest

from geh_explain.groups.descriptions import ALL_POINTS, NO_DESCRIPTION, CodeNames, Description, describe_groups
from geh_explain.groups.group_info import stratified_sample


def texts(values: np.ndarray, labels: np.ndarray, columns: list[str], **options: np.ndarray) -> list[str]:
    return [str(each) for each in describe_groups(values, labels, columns, int(labels.max()) + 1, **options)]


def uniform(rows: int = 400, columns: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(rows, columns))


@pytest.mark.parametrize("seed", range(3))
def test_boxes_of_two_features_are_their_own_descriptions(seed: int) -> None:
    x = uniform(seed=seed)
    labels = 2 * (x[:, 1] >= 0.3) + (x[:, 3] >= 0.75)
    assert texts(x, labels.astype(int), ["a", "b", "c", "d"]) == [
        "b < 0.3 and d < 0.75 (100 %)",
        "b < 0.3 and d >= 0.75 (100 %)",
        "b >= 0.3 and d < 0.75 (100 %)",
        "b >= 0.3 and d >= 0.75 (100 %)",
    ]


def test_one_rule_suffices_where_it_is_exact_and_a_range_is_one_clause() -> None:
    x = uniform()
    labels = np.digitize(x[:, 2], [0.2, 0.6])
    assert texts(x, labels, ["a", "b", "c", "d"]) == ["c < 0.2 (100 %)", "0.2 <= c < 0.6 (100 %)", "c >= 0.6 (100 %)"]


def test_whole_numbers_binary_and_few_valued_columns_are_written_as_such() -> None:
    generator = np.random.default_rng(0)
    hour, workingday = generator.integers(0, 24, 600), generator.integers(0, 2, 600)
    season, noise = generator.integers(1, 5, 600), generator.normal(size=600)
    x = np.stack([hour, workingday, season, noise], axis=1).astype(float)
    columns = ["hour", "workingday", "season", "noise"]
    groups = np.select([(hour < 7) & (workingday == 1), (hour == 12), (season == 3) & (hour >= 7)], [1, 2, 3], 0)
    found = texts(x, groups, columns)
    assert found[1:3] == ["hour < 7 and workingday = 1 (100 %)", "hour = 12 (100 %)"]
    # Without the points of noon, which belong to the group before.
    share = np.mean(groups[(season == 3) & (hour >= 7)] == 3)
    assert found[3] == f"hour >= 7 and season = 3 ({int(100 * share)} %)"


def test_thresholds_have_the_fewest_digits_that_leave_the_members() -> None:
    income = np.array([12.0, 31.0, 48731.0, 51234.0, 90123.0, 120456.0])[:, None]
    assert texts(income, np.array([0, 0, 0, 1, 1, 1]), ["income"]) == [
        "income < 50000 (100 %)",
        "income >= 50000 (100 %)",
    ]
    small = np.array([[1.01e-5], [1.02e-5], [1.04e-5], [1.05e-5]])
    assert texts(small, np.array([0, 0, 1, 1]), ["rate"])[0] == "rate < 1.03e-05 (100 %)"
    signed = np.array([[-1.0], [-0.3], [0.4], [2.0]])
    assert texts(signed, np.array([0, 0, 1, 1]), ["z"])[0] == "z < 0 (100 %)"
    two = np.array([[-0.43], [2.3], [2.3], [-0.43]])
    assert texts(two, np.array([0, 1, 1, 0]), ["s"]) == ["s = -0.43 (100 %)", "s = 2.3 (100 %)"]


def test_the_agreement_is_the_jaccard_index_and_counts_weights() -> None:
    x = np.arange(8.0)[:, None]
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    # "x < 3" holds for three of the four points of the group, and for no other ones.
    first = describe_groups(x, labels, ["x"], 2)[0]
    assert (first.text, first.agreement) == ("x < 3", 0.75)
    weighted = describe_groups(x, labels, ["x"], 2, np.array([1.0] * 7 + [0.5]))[0]
    assert (weighted.text, weighted.agreement) == ("x < 3", 3 / 3.5)


def test_rules_that_say_hardly_more_than_the_size_of_a_group_are_no_description() -> None:
    x = np.arange(20.0)[:, None]
    labels = np.zeros(20, dtype=int)
    labels[[5, 12, 19]] = 1
    # "x < 19" agrees by 17 / 19 with the first group, and all points do by 17 / 20.
    first = describe_groups(x, labels, ["x"], 2)[0]
    assert (first.text, first.agreement) == (NO_DESCRIPTION, 17 / 19)


def test_groups_that_rules_do_not_fit_have_no_description() -> None:
    x = uniform(600)
    labels = np.random.default_rng(1).integers(0, 5, 600)
    found = describe_groups(x, labels, ["a", "b", "c", "d"], 5)
    assert [each.text for each in found] == [NO_DESCRIPTION] * 5
    assert all(0 < each.agreement < 0.6 for each in found)
    assert str(found[0]) == "no short description"


def test_degenerate_tables_are_described_or_not_without_errors() -> None:
    assert texts(np.zeros((0, 2)), np.zeros(1, dtype=int), ["a", "b"]) == [ALL_POINTS]
    constant = describe_groups(np.ones((4, 2)), np.array([0, 0, 1, 1]), ["a", "b"], 2)
    assert [each.text for each in constant] == [NO_DESCRIPTION] * 2
    broken = np.array([[np.nan, 0.0], [0.0, 1.0], [1.0, np.inf], [2.0, 0.0]])
    assert describe_groups(broken, np.array([0, 0, 1, 1]), ["a", "b"], 2)[0].text == NO_DESCRIPTION
    empty = describe_groups(np.array([[0.0], [1.0]]), np.array([0, 2]), ["a"], 3)
    assert [each.text for each in empty] == ["a = 0", NO_DESCRIPTION, "a = 1"]
    huge = np.array([[1e300], [-1e300], [1.5e300]])
    assert describe_groups(huge, np.array([0, 1, 0]), ["a"], 2)[1].agreement == 1.0
    close = np.array([[1.0], [np.nextafter(1.0, 2.0)]])
    assert [each.agreement for each in describe_groups(close, np.array([0, 1]), ["a"], 2)] == [1.0, 1.0]


def test_a_sample_has_points_of_small_groups_and_stands_for_all() -> None:
    labels = np.repeat([0, 1, 2], [5000, 30, 970])
    indices, weights = stratified_sample(labels, 3, rows=600, least=20)
    assert np.all(np.diff(indices) > 0)
    counts = np.bincount(labels[indices])
    assert counts.tolist() == [500, 20, 97]
    np.testing.assert_allclose(np.bincount(labels[indices], weights), [5000, 30, 970])


def test_groups_without_rules_are_described_by_the_means_that_differ_most() -> None:
    """In six columns the sign of a sum is no short rule; the group means are those of half-normal distributions."""
    x = np.random.default_rng(0).normal(size=(4000, 6)) * [1, 1, 1, 1, 1, 10] + 3
    labels = ((x[:, :5] - 3) @ [2, 1, 1, 1, 1] > 0).astype(int)
    found = describe_groups(x, labels, list("abcdef"), 2)
    # E[a | group] = 3 +- sqrt(2 / pi) 2 / sqrt(8) = 3 +- 0.56, and of the others half of that.
    assert not any(each.is_rule for each in found)
    assert found[1].text.startswith("on average a 3.5")
    assert f"{x[labels == 1, 0].mean():.2f} (all: {x[:, 0].mean():.2f}), " in found[1].text
    assert "%" not in str(found[1])
    assert Description(found[1].text, 1.0).is_rule is False  # as it is read from a file


def test_shares_of_levels_are_named_where_they_differ_most() -> None:
    rng = np.random.default_rng(0)
    labels, x = np.arange(900) % 3, rng.normal(size=(900, 2))
    city = np.where((labels == 0) & (rng.random(900) < 0.5), 2.0, rng.integers(0, 2, 900))
    found = describe_groups(np.column_stack([x, city]), labels, ["u", "v", "city"], 3, codes={2: CITIES})
    share = (city[labels == 0] == 2).mean()
    assert found[0].text == f"on average city = Rome in {100 * share:.0f} % (all: {100 * share / 3:.0f} %)"


CITIES = CodeNames(("Bonn", "Oslo", "Rome"))


def test_codes_are_shown_by_name_and_compared_only_if_they_are_ordered() -> None:
    city = np.arange(90.0) % 3
    values = np.column_stack([city, np.arange(90.0)])
    middle = describe_groups(values, (city == 1).astype(int), ["city", "n"], 2, codes={0: CITIES})
    assert str(middle[1]) == "city = Oslo (100 %)"
    two = describe_groups(values, (city >= 1).astype(int), ["city", "n"], 2, codes={0: CITIES})
    assert [str(each) for each in two][:1] == ["city = Bonn (100 %)"]
    assert ">=" not in two[1].text  # Oslo and Rome are no range
    days = CodeNames(tuple(f"2020-01-{day:02}" for day in range(1, 31)), ordered=True)
    day = np.arange(300.0) % 30
    early = describe_groups(day[:, None], (day < 9).astype(int), ["day"], 2, codes={0: days})
    assert [str(each) for each in early] == ["day >= 2020-01-10 (100 %)", "day < 2020-01-10 (100 %)"]
    grade = CodeNames(("low", "mid", "high"), ordered=True)
    ends = describe_groups(city[:, None], city.astype(int), ["grade"], 3, codes={0: grade})
    assert [str(each) for each in ends] == ["grade = low (100 %)", "grade = mid (100 %)", "grade = high (100 %)"]

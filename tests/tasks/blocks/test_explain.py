from linbench.tasks.blocks.explain import listed, shortened


def test_long_things_are_told_shortly() -> None:
    assert listed(["a", "b"], most=2) == "a; b"
    assert listed(["a", "b", "c", "d"], most=2) == "a; b; and 2 more"
    assert listed(["a", "b", "c"], most=1, between=" ") == "a and 2 more"
    assert shortened([1, 2, 3, 4], most=2) == "1 2 3 4"
    assert shortened([1, 2, 3, 4, 5], most=2) == "1 2 ... 4 5"

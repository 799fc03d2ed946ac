"""Read `gather:` of a trigger: digest, debounce, join, throttle and dedupe, and which of them go together with what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from harken.config.findings import Code, Path, Report
from harken.config.resolver import Resolver
from harken.config.trigger_schema import CommonBlock, GatherBlock, JoinBlock
from harken.config.yaml.nodes import Node, Scalar, Table, locate
from harken.errors import HarkenError
from harken.feed import Debounce, Dedupe, Digest, Gather, Join, JoinForm, Part, Throttle
from harken.suggest import suggest_fix

__all__ = ["CLASHES", "Clash", "Gathering", "check_compiles", "read_gather"]

KINDS = ("digest", "debounce", "join")
"""How a run gathers: a trigger has one of them at most."""

LONGEST_LOOK_BACK = 86_400.0


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """What `gather:` says. `looks_back`: so many seconds before its creation the trigger takes parts from."""

    gather: Gather | None = None
    throttle: Throttle | None = None
    dedupe: Dedupe | None = None
    looks_back: float = 0.0


class Clash(msgspec.Struct, frozen=True, kw_only=True):
    """Two settings that do not go together, as paths below `trigger`, and what to do instead.

    `when`: only for this value of the first one's setting.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    why: str
    fix: str
    when: tuple[str, str] | None = None


CLASHES = (
    *(
        Clash(
            first=("gather", kind),
            second=("gather", "throttle"),
            why=f"a {kind} starts one run for many events already",
            fix="Make its window longer, or keep throttle alone",
        )
        for kind in ("digest", "debounce")
    ),
    Clash(
        first=("gather", "join"),
        second=("gather", "throttle"),
        why="a run that waits for parts cannot wait for its turn too",
        fix="Emit an event in this workflow, and throttle the workflow that listens to it",
    ),
    Clash(
        first=("gather", "join"),
        second=("max_age",),
        why="an old event would go into the run that old events share, not to its other parts",
        fix="Remove max_age: parts that happened too far apart do not join",
    ),
    Clash(
        first=("gather", "throttle"),
        second=("quiet_hours",),
        why="runs that wait for their turn would all start when the quiet hours end",
        fix="Write rest: drop",
        when=("rest", "hold"),
    ),
)
"""Every other pair of a way to gather and a setting beside it works."""


def read_gather(block: CommonBlock, table: Table, resolver: Resolver, report: Report, path: Path) -> Gathering:
    gather = block.gather
    if gather is None:
        return Gathering()
    kinds = [kind for kind in KINDS if getattr(gather, kind) is not None]
    for kind in kinds[1:]:
        message = f"does not go together with gather.{kinds[0]}: a run gathers in one way"
        _error(report, table, path, ("gather", kind), message, "Keep one of them")
    _check_clashes(gather, table, report, path)
    _check_debounce(gather, table, report, path)
    _check_keys(table, resolver, report, path)
    join = _read_join(gather.join, table, resolver, report, path) if gather.join else None
    looks_back = min(join.within, LONGEST_LOOK_BACK) if join and not _says_where_to_begin(table) else 0.0
    return Gathering(
        gather=join or _read_window(gather),
        throttle=Throttle(**gather.throttle.model_dump()) if gather.throttle else None,
        dedupe=Dedupe(**gather.dedupe.model_dump()) if gather.dedupe else None,
        looks_back=looks_back,
    )


def _says_where_to_begin(table: Table) -> bool:
    inner = table.items.get("poll")
    blocks = [table, *([inner] if isinstance(inner, Table) else [])]
    return any(key in block.items for block in blocks for key in ("startup", "backfill"))


def _read_window(gather: GatherBlock) -> Digest | Debounce | None:
    if gather.digest is not None:
        return Digest(window=gather.digest.window, max=gather.digest.max, by=gather.digest.by)
    if gather.debounce is None:
        return None
    block = gather.debounce
    return Debounce(window=block.window, max_wait=block.max_wait or 0.0, max=block.max, by=block.by)


def _check_clashes(gather: GatherBlock, table: Table, report: Report, path: Path) -> None:
    for clash in CLASHES:
        first, second = (_is_written(table, side) for side in (clash.first, clash.second))
        if not first or not second:
            continue
        if clash.when is not None and getattr(getattr(gather, clash.first[-1]), clash.when[0]) != clash.when[1]:
            continue
        message = f"does not go together with {'.'.join(clash.first)}: {clash.why}"
        _error(report, table, path, clash.second, message, clash.fix)


def _is_written(node: Node, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(node, Table) or name not in node.items:
            return False
        node = node.items[name]
    return not (isinstance(node, Scalar) and node.value is None)


def _check_debounce(gather: GatherBlock, table: Table, report: Report, path: Path) -> None:
    block = gather.debounce
    if block is not None and block.max_wait is not None and block.max_wait < block.window:
        where = ("gather", "debounce", "max_wait")
        _error(report, table, path, where, "is shorter than window", "Write at least the window, or a digest")


def _check_keys(table: Table, resolver: Resolver, report: Report, path: Path) -> None:
    """Keys are expressions in CEL, or templates; `when` is a condition."""
    for inside, scalar in _keys(table):
        compiler = resolver.check_template if "{{" in str(scalar.value) else resolver.check_key
        if inside[-1] == "when":
            compiler = resolver.check_condition
        check_compiles(compiler, scalar, report, (*path, *inside))


def _keys(table: Table) -> Iterator[tuple[Path, Scalar]]:
    gather = table.items.get("gather")
    if not isinstance(gather, Table):
        return
    for kind, block in gather.items.items():
        if not isinstance(block, Table):
            continue
        yield from _scalars(block, ("gather", kind), ("by",))
        parts = block.items.get("parts") if kind == "join" else None
        for name, part in parts.items.items() if isinstance(parts, Table) else ():
            if isinstance(part, Table):
                yield from _scalars(part, ("gather", kind, "parts", name), ("by", "when"))


def _scalars(table: Table, path: Path, names: tuple[str, ...]) -> Iterator[tuple[Path, Scalar]]:
    for name in names:
        found = table.items.get(name)
        if isinstance(found, Scalar) and isinstance(found.value, str) and found.value:
            yield (*path, name), found


def check_compiles(compiler: Callable[[str], object], scalar: Scalar, report: Report, path: Path) -> None:
    try:
        compiled = compiler(str(scalar.value))
    except HarkenError as error:
        report.error(scalar.place, path, error.message, error.fix, "expression", getattr(error, "excerpt", ""))
        return
    if "{{" in str(scalar.value):
        return
    reads = getattr(getattr(compiled, "expression", compiled), "reads", ())
    if path[-1] in ("condition", "when", "by") and any(read[0] == "steps" for _, read in reads):
        message, fix = "no step has run when a trigger decides", "Read event, or put this condition into a filter step"
        report.error(scalar.place, path, message, fix, "expression")


def _read_join(block: JoinBlock, table: Table, resolver: Resolver, report: Report, path: Path) -> Join | None:
    where = ("gather", "join")
    forms = [name for name in ("all", "any", "then") if getattr(block, name) is not None]
    for name in forms[1:]:
        _error(report, table, path, (*where, name), f"does not go together with {forms[0]}", "Keep one of them")
    for named in ("all", "then", "none"):
        _check_names(block, named, table, report, path)
    form: JoinForm = "then" if block.then is not None else "any" if block.any is not None else "all"
    none = tuple(block.none or ())
    wanted = [name for name in block.then or block.parts if name not in none]
    _check_wanted(block, wanted, table, report, path)
    parts = tuple(
        Part(
            name=name,
            by=block.parts[name].by,
            when=block.parts[name].when,
            feed=_feed_of(block, name, table, resolver, report, path),
        )
        for name in (*wanted, *none)
        if name in block.parts
    )
    if report.failed:
        return None
    return Join(parts=parts, within=block.within, form=form, count=block.any or 0, none=none, on_miss=block.on_miss)


def _check_names(block: JoinBlock, form: str, table: Table, report: Report, path: Path) -> None:
    """The names are those of parts, each once; a part is either wanted or not."""
    names: Sequence[str] = getattr(block, form) or ()
    where = ("gather", "join", form)
    for name in dict.fromkeys(names):
        if name not in block.parts:
            _error(report, table, path, where, f"there is no part {name!r}", suggest_fix(name, list(block.parts)))
        elif names.count(name) > 1:
            _error(report, table, path, where, f"has {name} twice", "A part comes once")
        elif form != "none" and name in (block.none or ()):
            _error(report, table, path, where, f"has {name}, which none has too", "Remove it from one of them")
    left = [name for name in block.parts if name not in (*names, *(block.none or ()))]
    if form != "none" and getattr(block, form) is not None and left:
        message = f"leaves out the part {left[0]}"
        _error(report, table, path, where, message, f"Add {left[0]}, write it into none, or remove the part")


def _check_wanted(block: JoinBlock, wanted: Sequence[str], table: Table, report: Report, path: Path) -> None:
    where = ("gather", "join")
    if not wanted:
        fix = "Leave at least one part out of none"
        _error(report, table, path, (*where, "none"), "has all parts, so nothing would start a run", fix)
    elif len(wanted) == 1 and not block.none:
        fix = "Add a part, or use a digest"
        _error(report, table, path, (*where, "parts"), "has one part, which nothing joins", fix)
    if block.any is not None and block.any > len(wanted) > 0:
        message = f"is more than the {len(wanted)} parts that may come"
        _error(report, table, path, (*where, "any"), message, f"Write at most {len(wanted)}")


def _feed_of(block: JoinBlock, name: str, table: Table, resolver: Resolver, report: Report, path: Path) -> str:
    """The name of the feed that the part comes from; empty for that of the trigger."""
    feed = block.parts[name].feed
    if not feed:
        return ""
    if feed not in resolver.feeds:
        where = ("gather", "join", "parts", name, "feed")
        if f"feed:{feed}" in resolver.refused:
            _error(report, table, path, where, f"the feed {feed} was refused", "Correct it first", "depends")
        else:
            fix = suggest_fix(feed, resolver.feeds)
            _error(report, table, path, where, f"there is no feed {feed!r}", fix, "unknown_name")
        return ""
    return resolver.feeds[feed].feed.name


def _error(
    report: Report, table: Table, path: Path, where: Path, message: str, fix: str, code: Code = "invalid"
) -> None:
    report.error(locate(table, where, key=True), (*path, *where), message, fix, code)

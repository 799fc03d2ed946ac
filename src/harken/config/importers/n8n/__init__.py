"""Translate workflows that n8n exported: each trigger node, with what follows it, becomes a workflow.

The graph is written as nested steps. A node that cannot be translated stands there as an `approve` step, so that the
shape is kept and nothing after it happens unseen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from harken.config.findings import Place, Report
from harken.config.importers import Imported, Variable, free_name, plain_text, slug
from harken.config.importers.n8n.conditions import condition_of, fallback_of, rules_of
from harken.config.importers.n8n.export import Graph, Node, read_export
from harken.config.importers.n8n.expressions import Scope, Untranslatable, ValuePath, of_the_usual_shape
from harken.config.importers.n8n.order import Order, order_of
from harken.config.importers.n8n.steps import PASSED_THROUGH, keeps_item, keeps_other_fields, step_of
from harken.config.importers.n8n.triggers import Started, is_trigger, start_of

__all__ = ["translate"]

DEEPEST = 8
MOST_STEPS = 1_000
MOST_NESTED = 100
_REFERENCE = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)\}")
_NOTES = "stickyNote"

Fields = tuple[str | int, ...]
Step = dict[str, Any]


def translate(text: str, *, file: str) -> Imported:
    """Return the workflows of an export, with a finding for each node that is not taken over."""
    report = Report()
    workflows: dict[str, Mapping[str, Any]] = {}
    places: dict[str, Place] = {}
    variables: dict[str, Variable] = {}
    addresses: set[str] = set()
    for graph in read_export(text, file=file, report=report):
        translation = _Translation(graph, report, variables, addresses)
        for node, made in translation.workflows():
            name = free_name(slug(graph.name) or "n8n", workflows)
            workflows[name] = {"name": name, **made}
            places[name] = node.place
    for workflow in workflows.values():
        for name in _REFERENCE.findall(str(workflow)):
            variables.setdefault(name, Variable(meaning=f"{name} of n8n's environment"))
    findings = tuple(sorted(report.findings, key=lambda one: (one.line, one.column)))
    return Imported(workflows=workflows, places=places, variables=variables, findings=findings)


class Item(msgspec.Struct, frozen=True):
    """Where the fields of an item are: in the event, in what a step gave back, or partly in an item before it."""

    base: tuple[str, ...]
    renamed: Callable[[Fields], Fields] | None = None
    own: frozenset[str] | None = None
    others: Item | None = None
    unclear: bool = False

    def path(self, fields: Fields) -> ValuePath:
        if self.unclear:
            raise Untranslatable("what it gets depends on the branch that was taken", "Name the step: {{.steps.ID…}}")
        if self.own is not None and self.others is not None and (not fields or fields[0] not in self.own):
            return self.others.path(fields)
        return ValuePath(base=self.base, fields=self.renamed(fields) if self.renamed else fields)


class _Translation:
    def __init__(self, graph: Graph, report: Report, variables: dict[str, Variable], addresses: set[str]) -> None:
        self._graph = graph
        self._report = report
        self._variables = variables
        self._addresses = addresses
        self._seen: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def workflows(self) -> Iterator[tuple[Node, dict[str, Any]]]:
        triggers = [node for node in self._graph.nodes.values() if is_trigger(node)]
        by_hand = {node.name for node in triggers if node.kind == "manualTrigger"}
        counts = any(
            node.name not in by_hand and not node.disabled and self._graph.edges.get(node.name) for node in triggers
        )
        # a button for trying it out, beside the trigger that counts
        shadowed = by_hand if counts else set()
        for node in triggers:
            self._seen.add(node.name)
            if node.name in shadowed or node.disabled:
                if node.disabled:
                    self.tell(node, "is disabled, and left out", "", warn=True)
                continue
            yield from self._started(node)
        for node in self._graph.nodes.values():
            if node.name not in self._seen and node.kind != _NOTES:
                reason = "no trigger leads to it" if triggers else "the workflow has no trigger node"
                self.tell(node, f"is left out: {reason}", "Connect it in n8n, or write it by hand", warn=bool(triggers))

    def _started(self, node: Node) -> Iterator[tuple[Node, dict[str, Any]]]:
        order = order_of(self._graph, node.name)
        self._seen |= set(order.nodes)
        for source, target in order.back_edges:
            fix = "Put what is repeated into foreach:, or retry: on a step"
            self.tell(self._graph.nodes[source], f"goes back to {target}: workflows have no loops", fix, warn=True)
        try:
            with of_the_usual_shape():
                started = start_of(node, self._graph.zone)
        except Untranslatable as reason:
            self.tell(node, str(reason), reason.fix)
            # the steps are worth having: a person can start them, and write the trigger
            started = Started(blocks=(None,))
        self._variables.update(started.variables)
        for remark, fix in started.remarks:
            self.tell(node, remark, fix, warn=True)
        if any("cron" in (block or {}).get("schedule", {}) for block in started.blocks) and not self._graph.zone:
            self.tell(node, "the workflow names no time zone: its hours are in UTC", "Set tz:", warn=True)
        for written in started.blocks:
            made = _Steps(self, self._graph, order)
            steps = made.steps_after(node, Item(("event",), started.fields))
            for name in made.left_out():
                message = "is left out: no way to it could be translated"
                self.tell(self._graph.nodes[name], message, "Write it by hand", warn=True)
            if not steps:
                self.tell(node, "starts nothing: no step follows it", "", warn=True)
                return
            block = self._with_an_address_of_its_own(node, written)
            note = {"description": plain_text(f"From the n8n workflow {self._graph.name}")}
            yield node, {**note, **({"trigger": dict(block)} if block else {}), "steps": steps}

    def _with_an_address_of_its_own(self, node: Node, block: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """n8n has one for each method of a path; here the second of them gets another id."""
        webhook = (block or {}).get("webhook")
        if webhook is None:
            return block
        prefix = f"{webhook.get('provider', 'generic')}/"
        address = free_name(prefix + webhook["id"], self._addresses)
        self._addresses.add(address)
        if address == prefix + webhook["id"]:
            return block
        told = f"another node has its path: here it is /webhooks/{address}"
        self.tell(node, told, "Change the sender", warn=True)
        return {"webhook": {**webhook, "id": address.removeprefix(prefix)}}

    def tell(self, node: Node, message: str, fix: str, *, warn: bool = False) -> None:
        """Say it once, although a node may be met on several ways."""
        if (node.name, message) in self._told:
            return
        self._told.add((node.name, message))
        whole = f"{node.kind}: {message}"
        path = ("nodes", node.name)
        if warn:
            self._report.warn(node.place, path, whole, fix, "ignored")
        else:
            self._report.error(node.place, path, whole, fix, "not_yet")

    def keep(self, variables: Mapping[str, Variable]) -> None:
        self._variables.update(variables)


class _Steps:
    """The steps of one workflow, written along its graph."""

    def __init__(self, translation: _Translation, graph: Graph, order: Order) -> None:
        self._translation = translation
        self._graph = graph
        self._order = order
        self._ids: set[str] = set()
        self._items: dict[str, Item] = {}
        self._count = 0
        self._nesting = 0
        # inside ways that follow one output beside each other: what ends one of them must not end the others
        self._beside = 0

    def steps_after(self, node: Node, item: Item) -> list[Step]:
        self._items[node.name] = item
        steps, _ = self._follow(self._order.after(node.name), item, stop="", depth=0)
        return steps

    def left_out(self) -> list[str]:
        """The nodes that the trigger leads to, and nothing that was written."""
        return [name for name in self._order.nodes if name not in self._items]

    def _follow(self, starts: tuple[str, ...], item: Item, stop: str, depth: int) -> tuple[list[Step], Item]:
        """The steps from these nodes on, until all ways meet in `stop` or end; ways of one output follow each other."""
        self._nesting += 1
        try:
            if self._nesting > MOST_NESTED:
                node = self._graph.nodes[starts[0]]
                self._translation.tell(node, "is left out: too many ways inside each other", "Divide the workflow")
                return [], item
            return self._ways(starts, item, stop, depth) if len(starts) > 1 else self._chain(starts, item, stop, depth)
        finally:
            self._nesting -= 1

    def _ways(self, starts: tuple[str, ...], item: Item, stop: str, depth: int) -> tuple[list[Step], Item]:
        meet = self._order.meeting(starts) or stop
        steps: list[Step] = []
        ends = []
        self._beside += 1
        for start in starts:
            if start != meet:
                made, end = self._follow((start,), item, meet, depth)
                steps += made
                ends.append(end)
        self._beside -= 1
        after = ends[0] if ends and all(end == ends[0] for end in ends) else Item((), unclear=True)
        if meet and meet != stop:
            made, after = self._follow((meet,), after, stop, depth)
            steps += made
        return steps, after

    def _chain(self, starts: tuple[str, ...], item: Item, stop: str, depth: int) -> tuple[list[Step], Item]:
        steps: list[Step] = []
        current = starts[0] if starts else ""
        while current and current != stop:
            node = self._graph.nodes[current]
            self._count += 1
            if self._count > MOST_STEPS:
                self._translation.tell(node, f"is left out: more than {MOST_STEPS} steps", "Divide the workflow")
                return steps, item
            outputs = [output for output in self._outputs(node) if output]
            if node.kind == "filter" and self._beside and not node.disabled and outputs:
                return steps + self._guarded(node, item, outputs[0], stop, depth), item
            if node.kind in ("if", "switch") and not node.disabled:
                made, item, meet = self._branch(node, item, stop, depth)
                steps += made
                following: tuple[str, ...] = (meet,) if meet else ()
            else:
                made, item = self._single(node, item)
                steps += made
                if len(outputs) > 1 and not node.disabled:
                    following = self._left_out(node, outputs)
                else:
                    following = outputs[0] if outputs else ()
            self._items[current] = item
            if len(following) > 1:
                made, item = self._follow(following, item, stop, depth)
                return steps + made, item
            current = following[0] if following else ""
        return steps, item

    def _outputs(self, node: Node) -> tuple[tuple[str, ...], ...]:
        """The outputs of a node without the one for what failed: such a run ends, and others hear of it."""
        outputs = self._order.outputs(node.name)
        if not node.error_output or node.disabled or node.kind in ("if", "switch"):
            return outputs
        regular = 2 if node.kind == "splitInBatches" else 1
        names = list(dict.fromkeys(target for output in outputs[regular:] for target in output))
        if names:
            message = f"a failure of it ends the run: what follows its error output is left out: {', '.join(names[:5])}"
            self._translation.tell(node, message, "Write on_error:, or on_failure in harken.yaml", warn=True)
        return outputs[:regular]

    def _guarded(self, node: Node, item: Item, starts: tuple[str, ...], stop: str, depth: int) -> list[Step]:
        """A filter node beside other ways: an `if` around what follows it, as `filter` would end all of them."""
        identity = self._identity(node)
        try:
            if depth >= DEEPEST:
                raise Untranslatable("too many branches inside each other", "Divide the workflow")
            with of_the_usual_shape():
                condition = condition_of(node.parameters, self._scope(item))
        except Untranslatable as reason:
            self._translation.tell(node, str(reason), reason.fix)
            return [_by_hand(identity, node)]
        self._items[node.name] = item
        steps, _ = self._follow(starts, item, stop, depth + 1)
        return [{"id": identity, "action": "if", "condition": condition, "then": steps}] if steps else []

    def _left_out(self, node: Node, outputs: list[tuple[str, ...]]) -> tuple[str, ...]:
        """What follows the outputs of a node that we cannot tell apart: only where they meet again."""
        starts = tuple(dict.fromkeys(target for output in outputs for target in output))
        meet = self._order.meeting(starts)
        names = ", ".join(starts[:5])
        self._translation.tell(node, f"has several outputs, and what follows them is left out: {names}", "", warn=True)
        return (meet,) if meet else ()

    def _single(self, node: Node, item: Item) -> tuple[list[Step], Item]:
        if node.disabled or node.kind in PASSED_THROUGH or node.kind == _NOTES:
            if node.disabled:
                self._translation.tell(node, "is disabled, and left out", "", warn=True)
            elif node.kind != "noOp":
                self._translation.tell(node, "has no step: what it gets is passed on", "Check what follows", warn=True)
            return [], item
        identity = self._identity(node)
        answer = Item(("steps", identity, "response"))
        try:
            if node.kind == "filter":
                with of_the_usual_shape():
                    step: Step = {"action": "filter", "condition": condition_of(node.parameters, self._scope(item))}
            else:
                with of_the_usual_shape():
                    made = step_of(node, self._scope(item))
                self._translation.keep(made.variables)
                for remark, fix in made.remarks:
                    self._translation.tell(node, remark, fix, warn=True)
                step = dict(made.step)
                if made.fields:
                    answer = Item(("steps", identity), made.fields)
        except Untranslatable as reason:
            self._translation.tell(node, str(reason), reason.fix)
            return [_by_hand(identity, node)], answer
        made_item = item if keeps_item(node) else answer
        if node.kind == "set" and keeps_other_fields(node):
            made_item = Item(made_item.base, own=frozenset(step["set"]), others=item)
        return [{"id": identity, **step}], made_item

    def _branch(self, node: Node, item: Item, stop: str, depth: int) -> tuple[list[Step], Item, str]:
        """An if or switch node with what follows each output, and the node where they meet again."""
        outputs = self._order.outputs(node.name)
        starts = tuple(dict.fromkeys(target for output in outputs for target in output))
        meet = self._order.meeting(starts) if len(starts) > 1 else ""
        if len(starts) == 1 and sum(1 for output in outputs if output) > 1:
            meet = starts[0]
        identity = self._identity(node)
        try:
            if depth >= DEEPEST:
                raise Untranslatable("too many branches inside each other", "Divide the workflow")
            scope = self._scope(item)
            with of_the_usual_shape():
                rules, rest = _rules(node, scope)
        except Untranslatable as reason:
            self._translation.tell(node, str(reason), reason.fix)
            if starts:
                names = ", ".join(name for name in starts[:5] if name != meet)
                self._translation.tell(node, f"what follows it is left out: {names or meet}", "", warn=True)
            return [_by_hand(identity, node)], item, meet if meet != stop else ""
        wired = [
            outputs[number] if number is not None and number < len(outputs) else ()
            for number in (*(number for number, _ in rules), rest)
        ]
        drops = not all(wired)
        if drops and self._beside:
            # each way has all that follows it, so that nothing is left that a dropped item could come to
            meet = ""
        ways: list[list[Step]] = []
        ends = []
        for output in wired:
            if output or not (drops and (meet or stop) and not self._beside):
                made, end = self._follow(output, item, meet or stop, depth + 1) if output else ([], item)
            else:
                made, end = [self._dropped(identity)], item
            ways.append(made)
            ends.append(end)
        after = item if all(end == item for end in ends) else Item((), unclear=True)
        conditions = [condition for _, condition in rules]
        step = _if(identity, conditions[0], ways) if node.kind == "if" else _switch(identity, conditions, ways)
        return [step] if step else [], after, meet if meet != stop else stop

    def _dropped(self, identity: str) -> Step:
        """The end of the run, where n8n drops an item because the output that it goes to leads nowhere."""
        identity = free_name(f"{identity}_ends", self._ids, "_")
        self._ids.add(identity)
        return {"id": identity, "action": "filter", "condition": "false"}

    def _identity(self, node: Node) -> str:
        wanted = slug(node.name, "_") or "step"
        identity = free_name(wanted if not wanted[0].isdigit() else f"step_{wanted}", self._ids, "_")
        self._ids.add(identity)
        return identity

    def _scope(self, item: Item) -> Scope:
        def of_node(name: str, fields: Fields) -> ValuePath:
            found = self._items.get(name)
            if found is None:
                raise Untranslatable(f"it uses {name}, which is not before it", "Name a step before it")
            return found.path(fields)

        return Scope(item=item.path, node=of_node, workflow=self._graph.name)


def _by_hand(identity: str, node: Node) -> Step:
    what = f"{node.name} ({node.kind})".replace("{{", "{ {").replace("${", "$ {")
    return {"id": identity, "action": "approve", "prompt": f"n8n's node {what} is not translated. Do it by hand"}


def _rules(node: Node, scope: Scope) -> tuple[list[tuple[int, str]], int | None]:
    """The output and the condition of each rule of an if or switch node, and the output for what fits none."""
    if node.kind == "if":
        return [(0, condition_of(node.parameters, scope))], 1
    rules = rules_of(node.parameters, scope, version=node.version)
    return rules, fallback_of(node.parameters, len(rules))


def _if(identity: str, condition: str, ways: list[list[Step]]) -> Step | None:
    yes, no = ways
    if not yes and not no:
        return None
    if not yes:
        yes, no, condition = no, [], f"!({condition})"
    return {"id": identity, "action": "if", "condition": condition, "then": yes, **({"else": no} if no else {})}


def _switch(identity: str, conditions: list[str], ways: list[list[Step]]) -> Step | None:
    *given, default = ways
    cases = [{"when": when, "steps": steps} for when, steps in zip(conditions, given, strict=True)]
    if not any(ways):
        return None
    return {"id": identity, "action": "switch", "cases": cases, **({"default": default} if default else {})}

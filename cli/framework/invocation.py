"""One run of one command: the values of the shared options, and all questions, messages and output."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from cli.exit_codes import ExitCode
from cli.framework.failure import Failure, failure_of
from cli.framework.stdout import data_stream, drawing_stream
from cli.framework.talk import Talk
from cli.output.format import OutputFormat
from cli.output.report import Advice, Nothing, Report

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.errors import AdminError
    from engine.admin.cluster.remedies import Operation, Words
    from engine.admin.cluster.rights import Right, ZnodeRight
    from engine.admin.cluster.settings_silence import SettingsSilence
    from engine.admin.cluster.target import ClusterTarget, Naming
    from engine.common.acl import Requirement

_DETAILS_MAX = 20

_SIDES = {
    "cluster": ("a live cluster", "--bootstrap-server or --zookeeper"),
    "wire": ("brokers", "--bootstrap-server or --zookeeper"),
    "zookeeper": ("ZooKeeper", "--zookeeper"),
}


def folded(items: Sequence[str], shown_max: int, hint: str = "") -> list[str]:
    """Return the first of many items, and how many more there are; a list that is hardly longer stays whole."""
    if len(items) <= shown_max + 1:
        return list(items)
    return [*items[:shown_max], f"… and {len(items) - shown_max} more" + (f" ({hint})" if hint else "")]


class Stop(Exception):
    """Ends a command with a failure that is known already."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The cluster options as typed."""

    zookeeper: str | None = None
    bootstrap_server: str | None = None
    cluster: str | None = None
    snapshot: str | None = None
    command_config: str | None = None
    jaas_config: str | None = None
    zk_tls_config_file: str | None = None
    via: str | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TargetOptions:
        """Return the cluster options among a command's parameters."""
        return cls(**{option.name: values.get(option.name) for option in fields(cls)})

    def naming(self) -> Naming:
        """Return the options as ``resolve_target`` takes them."""
        from engine.admin.cluster.target import Naming, Side

        return Naming(
            self.zookeeper,
            self.bootstrap_server,
            self.cluster,
            self.snapshot,
            self.command_config,
            Side(self.via) if self.via else None,
            self.jaas_config,
            self.zk_tls_config_file,
        )

    def words(self) -> list[str]:
        """Return the options that name a live cluster, to be typed again; what the environment names needs none."""
        named = {
            "--bootstrap-server": self.bootstrap_server,
            "--zookeeper": self.zookeeper,
            "--cluster": self.cluster,
            "--command-config": self.command_config,
            "--jaas-config": self.jaas_config,
            "--zk-tls-config-file": self.zk_tls_config_file,
            "--via": self.via,
        }
        return [word for option, value in named.items() if value for word in (option, value)]


@dataclass(slots=True)
class Invocation:
    """What a command gets in addition to its own arguments. Owned by one run of the command."""

    output: OutputFormat
    talk: Talk
    timeout_s: float = 30.0
    has_timeout_given: bool = False
    is_dry_run: bool = False
    is_confirmed: bool = False
    asks: str = "either"
    """Who can answer: one of ``options.Asks``."""
    target_options: TargetOptions = field(default_factory=TargetOptions)
    cluster_name: str | None = None
    """The cluster that is meant, once it has been looked for."""
    restart_deadline: Callable[[], None] = lambda: None
    """Restarts the command's time limit: how long a person thinks is not the cluster's fault."""
    has_told_keys: bool = False
    """Keys of the client's properties that mean nothing have been named."""
    is_for_change: bool = False
    """A cluster was opened in order to change it."""
    would_change: bool = False
    """A dry run found something to change."""
    rights: tuple[Requirement, ...] = ()
    """The ACLs that the command needs, whatever its options."""
    essential_rights: tuple[Requirement, ...] = ()
    """Those without which it is refused; without the others a part is hidden."""
    hidden_parts: dict[object, str] = field(default_factory=dict)
    """What is hidden without each right (``kind``), where the table of rights says it."""
    denials: list[Cluster] = field(default_factory=list)
    """The opened clusters. Each knows which missing rights led to a refusal, or hide something."""
    _refusals_shown: set[tuple[str | None, str | None]] = field(default_factory=set)
    """Operations and resources of refusals that were shown."""
    settings: SettingsSilence | None = None
    """What the opened clusters have found out about ZooKeeper, and brokers that wait for it."""
    unanswered: list[str] = field(default_factory=list)
    """Commands that show the outcome of changes without an answer."""
    awaited: Callable[[float], dict[str, float]] = lambda least_s: {}
    """Whom the cluster has been waiting for, at least this many seconds, and for how long."""
    is_terminated: bool = False
    """TERM has asked it to end."""
    is_ended_by_interrupt: bool = False
    """Ctrl-C is how its user ends it, so that is no error."""
    waited_for: str | None = None
    """The broker, or file system, that had been silent longest when the command's time was up."""
    has_sent_changes: bool = False
    """Something was sent that may change the cluster."""
    report_code: ExitCode = ExitCode.UNDER_WAY
    """The exit code of the command's report; until there is one, what was sent is not known to be done."""
    left_running: list[str] = field(default_factory=list)
    """What continues without us, and how to look at it. The command says so if Ctrl-C or the deadline ends it."""

    def note_unanswered(self, looks: Sequence[Operation]) -> None:
        """Remember that the outcome of changes is unknown, and which commands show it."""
        from cli.framework.remedies import spelled
        from engine.admin.cluster.remedies import words

        self.unanswered = [self.pasteable(spelled(words(look))) for look in looks]

    def accepted(self, what_goes_on: Words) -> None:
        """Note that the cluster accepted a change: from now on the deadline means "still under way"."""
        from cli.framework.remedies import spelled

        self.left_running.append(self.pasteable(spelled(what_goes_on)))

    def pasteable(self, text: str) -> str:
        """Return a text that ends with a klamm command, followed by the options that named the cluster.

        Pasted without them, the command would ask another cluster, or none.
        """
        options = shlex.join(self.target_options.words())
        return f"{text} {options}" if "klamm " in text and options and options not in text else text

    def target(self, *, for_change: bool = False) -> ClusterTarget:
        """Return the cluster that is meant.

        Refuses to change a snapshot, or a profile that is read-only. Such a profile allows dry runs.
        """
        import os
        from pathlib import Path

        from engine.admin.cluster.target import resolve_target

        target = resolve_target(self.target_options.naming(), os.environ, Path.cwd())
        self.cluster_name = target.name
        self._tell_unknown_keys(target)
        self.talk.detail(f"cluster: {target.name} (named by {target.origin.value})")
        self.is_for_change = self.is_for_change or for_change
        if for_change:
            self._refuse_read_only(target)
        self._refuse_wrong_side(target)
        return target

    def _tell_unknown_keys(self, target: ClusterTarget) -> None:
        """Name once the keys of the client's properties that no client of Kafka knows."""
        entries = target.client_properties.entries
        if not entries or self.has_told_keys:
            return
        from engine.admin.cluster.client_properties import unknown_keys

        self.has_told_keys = True
        unknown = unknown_keys(entries)
        if unknown:
            named = [key if near is None else f"{key} (did you mean {near}?)" for key, near in unknown.items()]
            self.talk.warn(f"client properties that no client of Kafka knows: {', '.join(named)}")

    def turn_to_brokers(self, error: Exception) -> bool:
        """Return whether the command is to run again with the brokers alone, since ZooKeeper gave no answer.

        Only what reads, as a dry run does: a change may have been half done when ZooKeeper was found to be away.
        """
        from engine.admin.cluster.errors import ZooKeeperUnreachable

        is_change = self.is_for_change and not self.is_dry_run
        if not isinstance(error, ZooKeeperUnreachable) or is_change or self.asks == "zookeeper":
            return False
        instead = "asking the brokers alone"
        if error.counts_as_dead:
            instead += ", and not for settings, which they read from ZooKeeper (--via wire does)"
        self.talk.warn(f"{error}: {error.where}: {instead}")
        self.target_options = replace(self.target_options, via="wire")
        return True

    @property
    def tells_details(self) -> bool:
        """Whether to show what changes into what: before a question, in a dry run and with --verbose."""
        return self.is_dry_run or self.talk.is_verbose or self.will_ask

    @property
    def will_ask(self) -> bool:
        """Whether somebody is there to be asked, and wants to be."""
        return self.talk.can_ask and not self.is_confirmed

    def confirm(self, change: str, details: Sequence[str] = (), *, is_destructive: bool = False) -> bool:
        """Return whether to carry out ``change``; a dry run only says what it would do.

        Asks on a terminal only. If the change is destructive (it may lose data, or nothing undoes it), an empty answer
        means no, and only --yes goes on without a terminal. Raises Stop (code 2) if it may not go on. Long
        ``details`` are folded.
        """
        for line in details if self.talk.is_verbose else folded(details, _DETAILS_MAX, "--verbose shows all"):
            self.talk.say(line)
        if not self.goes_ahead(change):
            return False
        if self.is_confirmed:
            return True
        if not self.talk.can_ask:
            if is_destructive:
                message = f"refusing to {change} without confirmation"
                hint = "confirm with --yes, or look first with --dry-run"
                raise Stop(Failure(ExitCode.USAGE, "usage", message, hint=hint))
            return True
        question = f"{change[:1].upper()}{change[1:]}?"
        is_wanted = self.talk.ask(question, is_yes_default=not is_destructive)
        self.restart_deadline()
        if is_wanted:
            return True
        raise Stop(Failure(ExitCode.USAGE, "usage", "not confirmed, nothing was changed"))

    def goes_ahead(self, change: str) -> bool:
        """Return whether to carry out a harmless change, which needs no confirmation: not in a dry run."""
        if self.is_dry_run:
            self.would_change = True
            self.talk.say(f"dry run: would {change}")
        return not self.is_dry_run

    def tell_failures(self, errors: Sequence[Exception], otherwise: ExitCode = ExitCode.DONE) -> ExitCode:
        """Print failures that did not end the command; return the first one's exit code, or ``otherwise``."""
        for cluster in self.denials:
            for error in errors:
                cluster.explain(error)
        failures = [failure_of(error, pasteable=self.pasteable) for error in errors]
        for failure in failures:
            self._refusals_shown.add((failure.operation, failure.resource))
            self.talk.fail(failure)
        return failures[0].code if failures else otherwise

    def tell_failures_but_hidden(self, errors: Sequence[AdminError]) -> ExitCode:
        """Report failures of things that the user did not name: what the principal may not see is hidden, and the end
        of the command says so."""
        from engine.admin.cluster.errors import FailureKind

        return self.tell_failures([error for error in errors if error.kind is not FailureKind.AUTHORIZATION])

    def tell_hidden(self, code: int) -> int:
        """Name the missing rights that hide something, unless a failure has named them.

        A command that was refused says so with its code; its report may have named the parts alone. A dry run is
        refused as its change would be. Return the exit code.
        """
        from engine.common.acl import ResourceType

        for cluster in self.denials:
            missing = self._missing(cluster.denied)
            essential = [
                right
                for right in missing
                if right.kind in self.essential_rights
                and (code == ExitCode.REFUSED or (self.is_dry_run and right.resource_type is ResourceType.CLUSTER))
            ]
            if essential:
                from engine.admin.cluster.errors import Refused

                code = self.tell_failures([Refused(right.code, where=right.resource_words) for right in essential])
                missing = self._missing(cluster.denied)
            if missing:
                self._tell_hidden(missing, cluster.principal)
            if cluster.hidden_znodes:
                self._tell_hidden(cluster.hidden_znodes, cluster.zookeeper_identity)
        return code

    def tell_hidden_so_far(self, denied: Iterable[Right], principal: str | None) -> None:
        """The same for a command that runs until somebody ends it: name each right once."""
        missing = self._missing(denied)
        self._refusals_shown.update((right.operation.word, right.resource) for right in missing)
        if missing:
            self._tell_hidden(missing, principal)

    def _missing(self, denied: Iterable[Right]) -> list[Right]:
        """Return the missing rights that hide something in a cluster, except those already named.

        Of topics that ZooKeeper lists, a broker may refuse less than the whole work needs.
        """
        from engine.admin.cluster.rights import asked_for
        from engine.common.acl import ResourceType

        wanted = dict.fromkeys(
            asked_for(right, self.rights) if right.resource_type is ResourceType.TOPIC else right for right in denied
        )
        return [
            right
            for right in wanted
            if right.kind in self.rights and (right.operation.word, right.resource) not in self._refusals_shown
        ]

    def _tell_hidden(self, missing: Sequence[Right | ZnodeRight], principal: str | None) -> None:
        if self.talk.is_json:
            self.talk.tell({"hidden": _rights_as_json(missing), "principal": principal})
            return
        from cli.framework.remedies import spelled
        from engine.admin.cluster.rights import Right

        by_kind: dict[object, list[Right | ZnodeRight]] = {}
        for right in missing:
            by_kind.setdefault(right.kind, []).append(right)
        for kind, (first, *others) in by_kind.items():
            more = f" and {len(others)} more" if others else ""
            part = f"{part}; " if (part := self.hidden_parts.get(kind)) else ""
            self.talk.warn(f"hidden: {part}{principal or 'this login'} lacks {first}{more}")
            self.talk.say(spelled(first.remedy(principal)))
            if others and isinstance(first, Right):
                self.talk.say(spelled(first.remedy_for_all))

    def print(self, report: Report) -> None:
        """Write a report on stdout and its notes on stderr."""
        from cli.output.printer import print_report
        from cli.output.values import json_value

        self.talk.clear()
        as_kafka = report.as_kafka() if self.output is OutputFormat.KAFKA and report.as_kafka is not None else None
        if as_kafka is not None:
            with data_stream() as stream:
                stream.write(as_kafka.out)
            self.talk.echo(as_kafka.said)
            return
        missing: list[Right | ZnodeRight] = []
        for cluster in self.denials:
            missing += [*self._missing(cluster.denied), *cluster.hidden_znodes]
        if missing and not report.is_file and not isinstance(report.data, list | tuple):
            data = json_value(report.data)
            hidden = {"hidden": _rights_as_json(missing)}
            report = replace(report, data=data | hidden if isinstance(data, dict) else data)
        with drawing_stream() as stream:
            print_report(report, self.output, stream)
        for note in report.notes:
            said = self.pasteable(note) if isinstance(note, Advice) else note
            self.talk.say(f"{said}{self.as_seen_by}" if isinstance(note, Nothing) else said)

    @property
    def as_seen_by(self) -> str:
        """By whose rights nothing was found, if lists may lack what a login may not see."""
        for cluster in self.denials:
            if cluster.denied or cluster.may_lack_unseen:
                return f" that {cluster.principal or 'this login'} may see"
        return ""

    def _refuse_wrong_side(self, target: ClusterTarget) -> None:
        if self.asks == "either":
            return
        who, option = _SIDES[self.asks]
        if target.snapshot is not None:
            hint = f"name the cluster with {option}"
            message = f"a snapshot does not know this, only {who}"
            raise Stop(Failure(ExitCode.USAGE, "usage", message, str(target.snapshot), hint))
        if target.via is not None and self.asks in ("wire", "zookeeper") and target.via.value != self.asks:
            message = f"only {who} can do this, not --via {target.via.value}"
            raise Stop(Failure(ExitCode.USAGE, "usage", message, hint="leave out --via"))

    def _refuse_read_only(self, target: ClusterTarget) -> None:
        if target.snapshot is not None:
            raise Stop(Failure(ExitCode.USAGE, "usage", "a snapshot cannot be changed", str(target.snapshot)))
        if target.is_read_only and not self.is_dry_run:
            hint = "remove read_only from its profile, or name the cluster by its address"
            raise Stop(Failure(ExitCode.USAGE, "usage", "this profile is read-only", target.name, hint))


def _rights_as_json(rights: Sequence[Right | ZnodeRight]) -> list[dict[str, str]]:
    return [{"resource": right.resource, "operation": right.operation.word} for right in rights]

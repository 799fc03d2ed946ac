// Events in words, as every page shows them.
import { line, words } from "../format.js";

export function titleOf(row) {
  return line([row.subject, row.title].filter(Boolean).join(" · ") || row.key);
}

/** What became of it: the best that any trigger made of it. */
export function outcomeOf(row) {
  const runs = row.verdicts.filter((verdict) => verdict.run_id);
  return (runs.find((verdict) => verdict.outcome === "fired") ?? runs[0] ?? row.verdicts[0])?.outcome ?? "stored";
}

export function verdictWords({ trigger, outcome, reason, run_id: run }) {
  return run && outcome === "fired" ? `${trigger} ran` : `${trigger} ${words(outcome)}${reason ? `, as ${reason}` : ""}`;
}

/** Where it came from, and what each trigger did about it. */
export function wayOf(row) {
  return line(`${row.feed} → ${row.verdicts.map(verdictWords).join("; ") || "no trigger listens"}`, 400);
}

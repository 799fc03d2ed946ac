// What stands beside a trigger's source: how its events become runs. Everything is checked by Harken, and all of it may be left away.
import { html } from "../vendor/preact.js";
import { SchemaForm, startsWith } from "../components/schema_form.js";

const text = (description, more = {}) => ({ type: "string", description, ...more });
const whole = (description, more = {}) => ({ type: "integer", description, ...more });
const object = (description, properties, required = []) => ({ type: "object", description, properties, required });
const BY = text("separately for each value of this, such as event.service");

const OPTIONS = object("", {
  overlap: { enum: ["allow", "skip", "queue", "cancel_previous"], default: "allow", description: "what an event does while an earlier run goes on" },
  max_attempts: whole("how often a run is tried before it is a dead letter", { default: 3 }),
  stale_after: text("silent for longer than this is an alert, such as 24h"),
  max_age: text("events that are older when they are found share one run, such as 2h"),
  flood_limit: whole("a first read that would start more runs holds them", { default: 100 }),
  concurrency_key: text("overlap counts separately for each value of this template"),
  priority: whole("runs with a higher one are started first", { default: 0 }),
  startup: { enum: ["since_last", "ignore_historical", "backfill"], default: "since_last", description: "which events count after a start" },
  backfill: text("how far a new trigger looks back, such as 4h"),
  gather: object("many events, one run", {
    digest: object("one run for all events within the window", { window: text("such as 10m"), max: whole("or once there are so many"), by: BY }, ["window"]),
    debounce: object("one run when none has come for a while", { window: text("such as 2m"), max_wait: text("at the latest after this"), by: BY }, ["window"]),
    throttle: object("at most so many runs in a span", { most: whole("runs"), per: text("such as 1h"), by: BY, rest: { enum: ["hold", "drop"], default: "hold", description: "what happens to the others" } }, ["most", "per"]),
    dedupe: object("of equal events only the first within the span", { by: BY, within: text("such as 1d") }, ["by", "within"]),
  }),
  quiet_hours: object("nothing is started in these hours", { start: text("such as 22:00"), end: text("such as 07:00"), tz: text("time zone", { default: "UTC" }) }, ["start", "end"]),
  budget: object("limits on what its runs use", { runs_per_hour: whole("runs"), tokens_per_day: whole("tokens of models"), usd_per_day: { type: "number", description: "dollars" } }),
});

/** `timeline`: how the rule would gather, drawn by Harken. */
export function Options({ draft, change, problems, timeline }) {
  const names = Object.keys(draft.options);
  const isWrong = problems.some(({ path }) => path[0] === "trigger" && path[1] in OPTIONS.properties);
  return html`<section class="card" aria-labelledby="options"><details open=${names.length > 0 || isWrong}>
    <summary><h2 id="options">How events become runs</h2><span class="dim">${names.length ? names.join(", ") : "overlap, gathering, quiet hours, budgets: as usual"}</span></summary>
    <${SchemaForm} schema=${OPTIONS} skip=${["input_mapping"]} value=${draft.options} onChange=${(options) => change({ options }, "options")} path=${["trigger"]} problems=${problems.filter(isOption)} />
    ${timeline?.length > 0 && html`<pre class="timeline" tabindex="0" aria-label="How events would be gathered">${timeline.join("\n")}</pre>`}</details></section>`;
}

const isOption = ({ path }) => startsWith(path, ["trigger"]) && path.length > 1 && path[1] in OPTIONS.properties;

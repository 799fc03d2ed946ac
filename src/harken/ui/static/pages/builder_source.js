// What a trigger listens to: first the choice of a service, then the form of its settings.
import { html, useState } from "../vendor/preact.js";
import { at, get, getAll } from "../api.js";
import { Field, SchemaForm, withValue } from "../components/schema_form.js";
import { Empty, Failed, FilteredOut, Loading } from "../components/states.js";
import { line } from "../format.js";
import { useResource } from "../resource.js";

const WAYS = ["poll", "webhook", "stream"];
const WAY_WORDS = { poll: "Read it regularly", webhook: "It sends webhooks", stream: "Follow its stream" };
const ELSEWHERE = ["cron", "files"];

/** What needs no service: [kind of trigger, name, summary]. */
const BUILT_IN = [
  ["schedule", "Schedule", "At times: every 15 minutes, weekdays at nine, once"],
  ["file", "Files", "Files that appear or change in a directory"],
  ["event", "Harken's own events", "Runs that finished or failed, triggers that went silent, what a step emits"],
  ["api", "By hand or by API", "Only when a person, a program or an agent starts it"],
  ["feed", "A named feed", "A feed that harken.yaml has under feeds:, shared by several triggers"],
];

const text = (description, more = {}) => ({ type: "string", description, ...more });
const SCHEDULE = {
  properties: {
    every: text("a span such as 15m or 1h"), cron: text("a cron line such as 0 9 * * 1-5"), at: text("one moment, such as 2026-12-24T18:00:00Z"),
    tz: text("time zone of the cron line, such as Europe/Berlin", { default: "UTC" }), missed: { enum: ["coalesce", "skip", "all"], default: "coalesce", description: "what happens to times at which nothing ran" },
  },
};
const EVENT = { properties: { types: { type: "array", items: { type: "string" }, description: "types of events, such as run.failed" }, workflow: text("only events about this workflow") } };
const INTERVAL = text("how often it is read, such as 5m");
const SHARED = { interval: INTERVAL };

/** The list of everything that can be listened to, with a search. `choose({provider, service, config})`. */
export function SourceChoice({ choose }) {
  const found = useResource((signal) => getAll("/api/services", {}, { signal }), []);
  const [wanted, setWanted] = useState("");
  return html`<section class="card stack" aria-labelledby="choose-source"><div class="card-head"><h2 id="choose-source">What should it listen to?</h2>
      <input class="service-search" type="search" data-search aria-label="Search services" placeholder="github, mail, every hour…" value=${wanted} onInput=${(event) => setWanted(event.currentTarget.value)} /></div>
    ${found.error && !found.data ? html`<${Failed} error=${found.error} retry=${found.reload} />` : html`<${Choices} services=${found.data ?? []} wanted=${wanted} clear=${() => setWanted("")} choose=${choose} />`}
    ${!found.data && !found.error && html`<${Loading} what="services" />`}</section>`;
}

function Choices({ services, wanted, clear, choose }) {
  const own = BUILT_IN.map(([provider, title, summary]) => ({ key: provider, title, summary, tags: [], call: () => choose({ provider, service: provider === "file" ? "files" : "", config: provider === "api" || provider === "feed" ? null : {} }) }));
  const listed = services.filter(({ kind, ways }) => ways.some((way) => WAYS.includes(way)) && !ELSEWHERE.includes(kind)).map((service) => ({
    key: service.kind, title: titleOf(service.kind), summary: service.summary, tags: service.ways.filter((way) => WAYS.includes(way)), call: () => choose(chosen(service)),
  }));
  const all = [...listed.filter(({ key }) => key === "webhook"), ...own, ...listed.filter(({ key }) => key !== "webhook")];
  const fits = ({ key, title, summary, tags }) => wanted.toLowerCase().split(/\s+/).every((word) => `${key} ${title} ${summary} ${tags.join(" ")}`.toLowerCase().includes(word));
  const shown = all.filter(fits);
  if (!shown.length) return html`<${FilteredOut} what="services" total=${all.length} clear=${clear} />`;
  return html`<ul class="services">${shown.map(({ key, title, summary, tags, call }) => html`<li key=${key}><button class="service" onClick=${call}>
    <span class="service-mark" aria-hidden="true">${title[0]}</span><span class="service-text"><strong>${title}</strong>
    <span class="dim">${line(summary, 120)}</span>${tags.length > 0 && html`<span class="service-ways">${tags.map((tag) => html`<span key=${tag} class="pill">${tag}</span>`)}</span>`}</span></button></li>`)}</ul>`;
}

/** The first way of a service to listen to it. */
function chosen({ kind, ways }, way = WAYS.find((one) => ways.includes(one))) {
  return { service: kind, provider: way, config: startOf(kind, way) };
}

const startOf = (kind, way) => (way === "webhook" ? (kind === "webhook" ? {} : { provider: kind }) : { integration: kind });
const NAMES = {
  azure_devops: "Azure DevOps", exec: "A program", gcs: "Google Cloud Storage", github: "GitHub", gitlab: "GitLab", imap: "IMAP mail", json: "JSON API", mqtt: "MQTT", nats: "NATS", page: "Web page",
  pagerduty: "PagerDuty", pubsub: "Google Pub/Sub", rabbitmq: "RabbitMQ", rss: "RSS and Atom", s3: "Amazon S3", sql: "SQL database", sqs: "Amazon SQS", sse: "Server-sent events", websocket: "WebSocket",
};
/** Names that are words and not a product's, as they stand inside a sentence. */
const PHRASES = {
  schedule: "a schedule", files: "files", feed: "a named feed", exec: "a program", json: "a JSON API", page: "a web page", sql: "an SQL database", sse: "server-sent events", webhook: "a webhook",
};
const titleOf = (kind) => NAMES[kind] ?? kind.split("_").map((word) => word.replace(/^./, (letter) => letter.toUpperCase())).join(" ");

/** The service that a row is about, as far as it says; `integrations` tell the kind of an account. */
export function serviceOf({ provider, config }, integrations) {
  if (provider === "webhook") return !config?.provider || config.provider === "generic" ? "webhook" : config.provider;
  if (provider === "file") return "files";
  const name = config?.integration ?? "";
  return integrations.find((one) => one.name === name)?.kind ?? name;
}

/** `kind`: of a service, or of a trigger that needs none. */
function headingOf(kind) {
  if (kind === "api") return "Start it by hand or by API";
  return `Listen to ${PHRASES[kind] ?? BUILT_IN.find(([one]) => one === kind)?.[1] ?? titleOf(kind)}`;
}

/** The form of what was chosen. */
export function SourceForm({ draft, change, problems, leave }) {
  const { provider, config } = draft;
  const integrations = useResource((signal) => getAll("/api/integrations", {}, { signal }).catch(() => []), []);
  // the name of an account is no kind of service: which it is of is known with the list of them
  const service = draft.service || (integrations.data ? serviceOf(draft, integrations.data) : "");
  const isBuiltIn = provider !== "file" && BUILT_IN.some(([kind]) => kind === provider);
  const set = (next) => change({ config: next }, "config");
  const path = ["trigger", provider];
  const given = config && typeof config === "object" ? config : {};
  return html`<section class="card stack" aria-labelledby="source"><div class="card-head"><h2 id="source">${isBuiltIn ? headingOf(provider) : service ? headingOf(service) : "What it listens to"}</h2><button class="quiet" onClick=${leave}>Choose another</button></div>
    ${provider === "schedule" && html`<${SchemaForm} schema=${SCHEDULE} value=${typeof config === "string" ? { cron: config } : config} onChange=${set} path=${path} problems=${problems} />`}
    ${provider === "event" && html`<${EventForm} value=${Array.isArray(config) || typeof config === "string" ? { types: [config].flat() } : config} onChange=${set} path=${path} problems=${problems} />`}
    ${provider === "feed" && html`<${FeedForm} value=${config} onChange=${set} path=${path} problems=${problems} />`}
    ${provider === "api" && html`<p class="dim">It has no settings: <code>harken workflows run ${draft.name || "NAME"}</code> starts it, or a POST to <code>/api/workflows/${draft.name || "NAME"}/run</code>.</p>`}
    ${!isBuiltIn && !service && html`<${Loading} what="its settings" />`}
    ${!["schedule", "event", "feed", "api"].includes(provider) && service && html`<${ServiceForm} ...${{ draft, change, service, integrations: integrations.data ?? [], given, set, path, problems }} />`}
    <${Whole} path=${path} problems=${problems} />
  </section>`;
}

function ServiceForm({ draft, change, service, integrations, given, set, path, problems }) {
  const { provider } = draft;
  const found = useResource((signal) => get(at`/api/services/${service}`, {}, { signal }), [service]);
  if (found.error) return html`<${Empty} title=${found.error.message}><p>${found.error.fix}</p><//>`;
  if (!found.data || found.data.kind !== service) return html`<${Loading} what="its settings" />`;
  const about = found.data;
  const ways = provider === "file" ? [] : WAYS.filter((way) => about.ways.includes(way));
  const schema = provider === "file" ? about.poll : about[provider];
  const inside = provider === "poll" || provider === "stream";
  return html`<p class="dim">${line(about.summary, 300)}${about.docs && html` <a href=${about.docs} target="_blank" rel="noreferrer">Its documentation</a>`}</p>
    ${ways.length > 1 && html`<fieldset class="ways"><legend class="sr">How</legend>${ways.map((way) => html`<label key=${way}><input type="radio" name="way" checked=${way === provider}
      onChange=${() => change({ provider: way, config: startOf(service, way) })} /> ${WAY_WORDS[way]}</label>`)}</fieldset>`}
    ${inside && html`<${Account} ...${{ about, integrations, given, set, path, problems }} />`}
    ${inside && schema && html`<${SchemaForm} schema=${schema} value=${given.query} onChange=${(query) => set(withValue(given, "query", query))} path=${[...path, "query"]} problems=${problems} />`}
    ${provider === "poll" && html`<${Field} name="interval" schema=${INTERVAL} value=${given.interval} onChange=${(next) => set(withValue(given, "interval", next))} path=${[...path, "interval"]} problems=${problems} label="Read every" />`}
    ${provider === "webhook" && html`<${Field} name="id" schema=${text("the last part of its address; the trigger's name unless you say")} value=${given.id} onChange=${(next) => set(withValue(given, "id", next))} path=${[...path, "id"]} problems=${problems} label="Id" />
      <${SchemaForm} schema=${schema ?? {}} value=${given} skip=${["id", "provider", "integration", "respond", "respond_within"]} first=${["scheme", "secret", "allow_unsigned", "id_field", "type_field"]} onChange=${set} path=${path} problems=${problems} />`}
    ${provider === "file" && html`<${SchemaForm} schema=${{ ...schema, properties: { ...schema.properties, ...SHARED } }} value=${given} onChange=${set} path=${path} problems=${problems} />`}`;
}

/** Which account is used; there may be several of a kind. */
function Account({ about, integrations, given, set, path, problems }) {
  const kind = about.uses || about.kind;
  const known = integrations.filter((one) => one.kind === kind).map((one) => one.name);
  if (!about.needs_account && !about.uses && known.length < 2) return html`<${Whole} path=${[...path, "integration"]} problems=${problems} />`;
  const names = [...new Set([about.kind, ...known, given.integration].filter(Boolean))];
  const schema = { enum: names, description: known.length ? "" : `its credentials are given to the command line: harken integrations ${kind} configure` };
  return html`<${Field} name="integration" schema=${schema} value=${given.integration} required onChange=${(next) => set(withValue(given, "integration", next))} path=${[...path, "integration"]} problems=${problems} label="Account" />`;
}

function EventForm({ value, onChange, path, problems }) {
  const types = useResource((signal) => getAll("/api/event-types", {}, { signal }).catch(() => []), []);
  const known = (types.data ?? []).map((one) => one.type);
  return html`<${SchemaForm} schema=${EVENT} value=${value} onChange=${onChange} path=${path} problems=${problems} suggestions=${{ types: known.length ? [`such as ${known.slice(0, 3).join(", ")}`] : ["run.failed"] }} />`;
}

function FeedForm({ value, onChange, path, problems }) {
  const feeds = useResource((signal) => getAll("/api/feeds", {}, { signal }).catch(() => []), []);
  return html`<${Field} name="feed" schema=${text("a name under feeds: in harken.yaml")} value=${value ?? undefined} onChange=${(next) => onChange(next ?? null)} path=${path} problems=${problems} suggestions=${(feeds.data ?? []).map((feed) => feed.name)} label="Feed" />`;
}

/** What is wrong with a block as a whole. */
function Whole({ path, problems }) {
  const here = problems.filter((one) => one.path.length === path.length && path.every((part, index) => one.path[index] === part));
  return here.map((one) => html`<p key=${one.message} class="wrong" role="alert">${one.message}${one.fix && `. ${one.fix}`}</p>`);
}

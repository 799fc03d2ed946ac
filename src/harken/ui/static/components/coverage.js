// What a feed has proven to have read: a band of time, in which gaps are marked. The same is told in words below it.
import { html } from "../vendor/preact.js";
import { count } from "../format.js";
import { now, span, stamp } from "../time.js";
import { Clock } from "./time_text.js";

const WIDTH = 1000;
const HEIGHT = 28;
const THINNEST = 4; // so that a gap of a second in a month is seen
const MOST_TOLD = 8;

/** `spans` and `gaps`: [{start, end}, …] as the API tells them; `reads`: the last reads, each {started_at, ended_at, error}. */
export function Coverage({ spans, gaps, reads = [] }) {
  if (!spans.length) return html`<p>Nothing is proven yet: the first complete read begins it.</p>`;
  const begin = Math.min(...spans.map((one) => Date.parse(one.start)));
  const end = Math.max(now.peek(), ...spans.map((one) => Date.parse(one.end)));
  const place = scale(begin, end);
  const lost = gaps.reduce((sum, gap) => sum + seconds(gap), 0);
  const told = gaps.length ? `${count(gaps.length, "gap")}, together ${span(lost)}` : "no gap";
  return html`<figure class="coverage">
    <svg role="img" aria-label="Read from ${stamp(begin)} until now: ${told}" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none">
      <rect class="unread" width=${WIDTH} height=${HEIGHT} />
      ${spans.map((one, index) => html`<rect key=${index} class="read" ...${place(one.start, one.end)} height=${HEIGHT} />`)}
      ${gaps.map((one, index) => html`<rect key=${index} class="gap" ...${place(one.start, one.end)} height=${HEIGHT} />`)}
    </svg>
    <div class="coverage-ends dim" aria-hidden="true"><${Clock} at=${new Date(begin).toISOString()} /><span>now</span></div>
    <figcaption><${Words} gaps=${gaps} begin=${begin} told=${told} latest=${spans.at(-1).end} /></figcaption>
    ${reads.length > 1 && html`<${ReadBand} reads=${reads} />`}
  </figure>`;
}

function Words({ gaps, begin, told, latest }) {
  const newest = gaps.toReversed().slice(0, MOST_TOLD);
  return html`<p>${gaps.length
      ? html`<strong class="wrong">${told}</strong>: what the source had in these times may have been missed.`
      : html`<strong>No gap</strong>: all that the source has had since <${Clock} at=${new Date(begin).toISOString()} /> was read, until <${Clock} at=${latest} />.`}</p>
    ${newest.length > 0 && html`<ul class="plain" aria-label="Gaps, newest first">${newest.map((gap) => html`<li key=${gap.start}>
      <span class="swatch gap" aria-hidden="true"></span> ${span(seconds(gap))}, from <${Clock} at=${gap.start} /> until <${Clock} at=${gap.end} /></li>`)}</ul>`}
    ${gaps.length > newest.length && html`<p class="dim">and ${count(gaps.length - newest.length, "older one")}</p>`}`;
}

/** The last reads one after the other: which went well, and which failed. */
function ReadBand({ reads }) {
  const begin = Math.min(...reads.map((one) => Date.parse(one.started_at)));
  const end = Math.max(...reads.map((one) => Date.parse(one.ended_at)));
  const place = scale(begin, end);
  const failed = reads.filter((one) => one.error);
  const times = (some) => some.reduce((sum, one) => sum + (one.count ?? 1), 0);
  const label = `${count(times(reads), "read")} since ${stamp(begin)}, ${times(failed)} of them failed`;
  return html`<svg role="img" aria-label=${label} viewBox="0 0 ${WIDTH} 10" preserveAspectRatio="none">
      <rect class="unread" width=${WIDTH} height="10" />
      ${reads.map((one, index) => html`<rect key=${index} class=${one.error ? "failed" : "read"} ...${place(one.started_at, one.ended_at)} height="10" />`)}
    </svg>
    <p class="dim">The thin band: ${label}.</p>`;
}

const seconds = (gap) => (Date.parse(gap.end) - Date.parse(gap.start)) / 1000;

/** (start, end) => {x, width} in the band. */
function scale(begin, end) {
  const unit = WIDTH / Math.max(1, end - begin);
  return (start, stop) => {
    const width = Math.max(THINNEST, (Date.parse(stop) - Date.parse(start)) * unit);
    return { x: Math.min(WIDTH - width, Math.max(0, (Date.parse(start) - begin) * unit)).toFixed(1), width: width.toFixed(1) };
  };
}

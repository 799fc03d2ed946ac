// Times as people read them. One switch decides whether all of them are local or UTC.
import { computed, signal } from "./vendor/preact.js";

const KEPT = "harken.zone";

/** "local" or "utc". */
export const zone = signal(localStorage.getItem(KEPT) === "utc" ? "utc" : "local");
/** The time now in ms, which moves once a second. */
export const now = signal(Date.now());
setInterval(() => document.hidden || (now.value = Date.now()), 1000);

export function switchZone() {
  zone.value = zone.value === "utc" ? "local" : "utc";
  localStorage.setItem(KEPT, zone.value);
}

let named = null; // made once, and only for this: to make such a format takes longer than a hundred uses of it

export function zoneName() {
  if (zone.value === "utc") return "UTC";
  named ??= new Intl.DateTimeFormat("en", { timeZoneName: "short" });
  return named.formatToParts(new Date()).find((part) => part.type === "timeZoneName")?.value ?? "local";
}

/** ["2026-03-01", "14:05:09"] in the zone that is chosen. */
function parts(moment) {
  const date = new Date(moment);
  // as if the local time were UTC: of that there is a text with fixed places
  const shifted = zone.value === "utc" ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19).split("T");
}

/** Changes once a day: who shows a clock need not be drawn again with every second. */
const today = computed(() => parts(now.value)[0]);

/** 14:05:09, with the day where it is not today. */
export function clock(moment) {
  if (!moment) return "";
  const [day, time] = parts(moment);
  return day === today.value ? time : `${day} ${time}`;
}

/** 2026-03-01 14:05:09 UTC. */
export function stamp(moment) {
  return moment ? `${parts(moment).join(" ")} ${zoneName()}` : "";
}

/** What a field for a time has, in the zone that is chosen: 2026-03-01T14:05:09. */
export const toField = (moment) => parts(moment).join("T");

/** The moment that was typed into such a field. */
export const fromField = (typed) => new Date(zone.value === "utc" ? `${typed}Z` : typed).toISOString();

/** "4 s ago", "just now", "in 2 min", "never" for nothing. */
export function ago(moment, never = "never") {
  if (!moment) return never;
  const seconds = (now.value - new Date(moment).getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}

/** A duration with its unit: "350 ms", "4.2 s", "12 min", "3 h 20 min", "5 d". */
export function span(seconds) {
  if (seconds == null) return "";
  if (seconds > 0 && seconds < 0.0005) return "under 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} d`;
}

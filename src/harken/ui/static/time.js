// Times as people read them. One switch decides whether all of them are local or UTC.
import { signal } from "./vendor/preact.js";

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

export function zoneName() {
  if (zone.value === "utc") return "UTC";
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date());
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "local";
}

function format(moment, options) {
  const timeZone = zone.value === "utc" ? "UTC" : undefined;
  return new Intl.DateTimeFormat("sv-SE", { ...options, timeZone }).format(new Date(moment));
}

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const DAY = { year: "numeric", month: "2-digit", day: "2-digit" };

/** 14:05:09, with the day where it is not today. */
export function clock(moment) {
  if (!moment) return "";
  const day = format(moment, DAY);
  return day === format(now.value, DAY) ? format(moment, TIME) : `${day} ${format(moment, TIME)}`;
}

/** 2026-03-01 14:05:09 UTC. */
export function stamp(moment) {
  return moment ? `${format(moment, { ...DAY, ...TIME })} ${zoneName()}` : "";
}

/** "4 s ago", "in 2 min", "never" for nothing. */
export function ago(moment, never = "never") {
  if (!moment) return never;
  const seconds = (now.value - new Date(moment).getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
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

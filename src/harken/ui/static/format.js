// Numbers and words as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 12,840; from a million on 1.2M. */
export function number(value) {
  if (value == null) return "–";
  return Math.abs(value) >= 1e6 ? short.format(value) : whole.format(value);
}

/** "run" for one, else "runs". */
export const plural = (value, one, many = `${one}s`) => (value === 1 ? one : many);

/** "1 run", "2 runs". */
export const count = (value, one, many) => `${number(value)} ${plural(value, one, many)}`;

/** "3.4 kB". */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${value < 10 && at ? Math.round(value * 10) / 10 : Math.round(value)} ${units[at]}`;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const MARKS = /(\p{M}{8})\p{M}+/gu; // no language has so many on a letter, and a browser cannot break a line between them

/** What a source sent, safe to show in one line: control characters and marks that turn the direction are made visible. */
export function line(text, most = 200) {
  const clean = String(text ?? "").slice(0, most * 4).replace(UNSEEN, "\u00b7").replace(MARKS, "$1\u00b7");
  return clean.length > most ? `${clean.slice(0, most)}…` : clean;
}

/** `before_start` → `before start`. */
export const words = (text) => String(text ?? "").replaceAll("_", " ");

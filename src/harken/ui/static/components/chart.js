// A chart over time on uPlot, in the colours of the theme. The same numbers are in a table for screen readers.
import { html, useEffect, useRef } from "../vendor/preact.js";
import uPlot from "../vendor/uplot.js";
import { number } from "../format.js";
import { theme } from "../theme.js";
import { stamp, zone } from "../time.js";

const HEIGHT = 220;

/**
 * `at`: times (ms), `series`: [{words, values, colour: a CSS variable such as "--chart-1", kind: "bars" or "line"}, …].
 * `label` says what it shows.
 */
export default function Chart({ at, series, label, height = HEIGHT }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const data = [at.map((moment) => moment / 1000), ...series.map((one) => one.values)];
  useEffect(() => {
    const element = frame.current;
    const drawn = (plot.current = new uPlot(options(element, series, height), data, element));
    // it may be told of a size after the element is gone and before this ends
    const watch = new ResizeObserver(() => element.isConnected && drawn.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      drawn.destroy();
    };
  }, [theme.value, zone.value, series.length, height]);
  useEffect(() => plot.current?.setData(data), [at, series]);
  return html`<figure class="chart">
    <figcaption class="legend">${series.map(
      (one) => html`<span key=${one.words}><span class="swatch ${one.colour.slice(2)}" aria-hidden="true"></span>${one.words}</span>`,
    )}</figcaption>
    <div ref=${frame} role="img" aria-label="${label}: ${series.map((one) => `${number(one.values.reduce((sum, value) => sum + value, 0))} ${one.words}`).join(", ")}"></div>
  </figure>`;
}

function options(element, series, height) {
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  return {
    width: element.clientWidth,
    height,
    tzDate: (seconds) => (zone.value === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    cursor: { points: { size: 6 } },
    legend: { show: false },
    padding: [8, 8, 0, 0],
    axes: [{ ...axis, grid: { show: false }, values: clockLabels, space: 80 }, { ...axis, size: 44, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? number(tick) : "")) }],
    scales: { y: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] } },
    series: [{ value: (_, seconds) => stamp(seconds * 1000) }, ...series.map((one) => line(one, colour(one.colour)))],
  };
}

function line({ words, kind }, stroke) {
  const bars = kind === "bars" ? { paths: uPlot.paths.bars({ size: [0.7, 40] }), fill: stroke, points: { show: false } } : {};
  return { label: words, stroke, width: kind === "bars" ? 0 : 2, points: { show: false }, ...bars };
}

const DAY = 86_400;

function clockLabels(plot, ticks) {
  const long = ticks.at(-1) - ticks[0] > 2 * DAY;
  const timeZone = zone.value === "utc" ? "UTC" : undefined;
  const seconds = ticks[1] - ticks[0] < 60 ? { second: "2-digit" } : {};
  const form = long ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", ...seconds };
  const { format } = new Intl.DateTimeFormat("en-GB", { ...form, timeZone });
  return ticks.map((tick) => format(new Date(tick * 1000)));
}

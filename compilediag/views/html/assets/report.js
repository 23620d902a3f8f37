// What a page can do with a script; all that it says can be read without one.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // --- copying ------------------------------------------------------------------------------
  // navigator.clipboard is missing in a file:// page of some browsers.
  const copy = async (element) => {
    const text = element.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection().selectAllChildren(element);
      if (!document.execCommand("copy")) return "Selected: copy it";
    }
    return "Copied";
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      button.textContent = await copy(button.previousElementSibling);
      button.setAttribute("aria-live", "polite");
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
  }

  // --- the steps; a mark has the colour of its finding's card -------------------------------
  const box = find("chart");
  if (!box || !data.steps || !data.steps.length) return;
  const { steps, wall, compile, median, shortest, phases, marks } = data;
  const middle = [...wall].sort((a, b) => a - b)[wall.length >> 1];
  const logarithmic = Math.max(...wall) > 20 * middle && middle > 0;
  let chart = null;
  let at = -1;

  // Of neighbouring steps one is drawn: a mark belongs to the first point that is not before it.
  const pointOf = (step) => {
    let low = 0;
    let high = steps.length - 1;
    while (low < high) {
      const half = (low + high) >> 1;
      if (steps[half] < step) low = half + 1;
      else high = half;
    }
    return low;
  };
  const marksAt = new Map();
  for (const mark of marks) {
    const point = pointOf(mark.step);
    marksAt.set(point, [...(marksAt.get(point) || []), mark]);
  }
  const marked = [...marksAt.keys()].sort((a, b) => a - b);

  const time = (ms) => (!ms ? "0" : ms >= 1000 ? `${+(ms / 1000).toPrecision(3)} s` : ms >= 1 ? `${+ms.toPrecision(3)} ms` : `${+(ms * 1000).toPrecision(3)} us`);
  const sentence = (point) => {
    const parts = [`step ${steps[point].toLocaleString("en")}: ${time(wall[point])}`];
    if (median.length) parts[0] += `, the longest of its neighbours (median ${time(median[point])})`;
    if (compile[point]) parts.push(`of it ${time(compile[point])} compiling`);
    for (const phase of phases) if (phase.ms[point]) parts.push(`${phase.name} ${time(phase.ms[point])}`);
    const here = (marksAt.get(point) || []).slice(0, 3);
    for (const mark of here) parts.push(`step ${mark.step}, ${mark.text}${mark.finding ? ` (finding ${mark.finding})` : ""}`);
    return parts.join("; ");
  };

  const drawMarks = (plot) => {
    const { ctx } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const mark of marks) {
      const x = Math.round(plot.valToPos(mark.step, "x", true));
      if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
      const again = mark.kind === "recompile";
      ctx.strokeStyle = ctx.fillStyle = color(mark.finding ? `part${(mark.finding - 1) % 8}` : again ? "recompile" : "first");
      ctx.setLineDash(again ? [] : [4, 4]);
      ctx.beginPath();
      ctx.moveTo(x, plot.bbox.top);
      ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
      ctx.stroke();
      const half = 5 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - half, plot.bbox.top);
      ctx.lineTo(x + half, plot.bbox.top);
      ctx.lineTo(x, plot.bbox.top + 2 * half);
      ctx.fill();
    }
    ctx.restore();
  };

  const thinned = median.length > 0;
  const draw = () => {
    const range = chart && chart.scales.x;
    const kept = range ? { min: range.min, max: range.max } : null;
    if (chart) chart.destroy();
    const text = (_plot, value) => (value === null || value === undefined ? "" : time(value));
    const shown = { width: 0, points: { show: false }, value: text };
    const bars = { ...shown, paths: uPlot.paths.bars({ size: [0.8, 60] }) };
    const rest = thinned
      ? [
          { ...shown, label: "longest" },
          { ...shown, label: "shortest" },
          { ...shown, label: "median", stroke: color("wall"), width: 1.5 },
        ]
      : [{ ...bars, label: "whole step", fill: color("part4") }];
    const columns = thinned ? [wall, shortest, median] : [wall];
    const positive = (values) => (logarithmic ? values.map((value) => value || null) : values);
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") } };
    chart = new uPlot(
      {
        width: box.clientWidth - 18,
        height: 300,
        scales: { x: { time: false, range: (_plot, low, high) => [low - 0.5, high + 0.5] }, y: { distr: logarithmic ? 3 : 1, range: logarithmic ? undefined : (_plot, _low, high) => [0, high * 1.05] } },
        axes: [axis, { ...axis, size: 70, values: (_plot, values) => values.map((value) => (value === null ? "" : time(value))) }],
        series: [{ label: "step" }, ...rest, { ...bars, label: "compiling", fill: color("recompile") }],
        bands: thinned ? [{ series: [1, 2], fill: color("part4") }] : [],
        cursor: { drag: { x: true, y: false } },
        hooks: { draw: [drawMarks], setCursor: [(plot) => plot.cursor.idx !== null && show(plot.cursor.idx)] },
      },
      [steps, ...columns.map(positive), positive(compile)],
      box,
    );
    if (kept) chart.setScale("x", kept);
  };
  const show = (point) => {
    at = point;
    find("readout").textContent = sentence(point);
  };
  const go = (point) => {
    const target = Math.max(0, Math.min(steps.length - 1, point));
    show(target);
    const { min, max } = chart.scales.x;
    if (steps[target] < min || steps[target] > max) {
      const half = (max - min) / 2;
      zoom(steps[target] - half, steps[target] + half);
    }
    chart.setCursor({ left: chart.valToPos(steps[target], "x"), top: 20 }, false);
  };
  const zoom = (min, max) => {
    const first = steps[0] - 0.5;
    const last = steps[steps.length - 1] + 0.5;
    chart.setScale("x", { min: Math.max(first, min), max: Math.min(last, Math.max(max, min + 1)) });
  };
  const whole = () => zoom(-Infinity, Infinity);
  const zoomBy = (factor) => {
    const { min, max } = chart.scales.x;
    const center = at >= 0 ? steps[at] : (min + max) / 2;
    const half = Math.max(1, ((max - min) / 2) * factor);
    zoom(center - half, center + half);
  };
  const keys = {
    ArrowLeft: (event) => go(event.shiftKey ? marked.filter((point) => point < at).pop() ?? at : at - 1),
    ArrowRight: (event) => go(event.shiftKey ? marked.find((point) => point > at) ?? at : at + 1),
    Home: () => go(0),
    "+": () => zoomBy(0.5),
    "-": () => zoomBy(2),
    Escape: whole,
    Enter: () => {
      const mark = (marksAt.get(at) || []).find((each) => each.finding);
      const card = mark && find(`finding-${mark.finding}`);
      if (card) {
        card.scrollIntoView();
        card.focus();
      }
    },
  };
  box.addEventListener("keydown", (event) => {
    const act = !event.ctrlKey && !event.altKey && !event.metaKey && keys[event.key];
    if (!act) return;
    event.preventDefault();
    act(event);
  });
  box.addEventListener("dblclick", whole);
  find("all").addEventListener("click", whole);
  for (const link of document.querySelectorAll("[data-step]")) {
    link.addEventListener("click", () => {
      go(pointOf(+link.dataset.step));
      box.focus();
    });
  }
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new ResizeObserver(() => chart.setSize({ width: box.clientWidth - 18, height: 300 })).observe(box);
})();

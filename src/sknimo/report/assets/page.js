
// The page: theme, and the what-if controls around `compileModel`.
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const byId = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const MINUS = "\u2212";
  const GRID = 41;
  const MAX_WHOLE = 200;
  const MOVES = 6;
  // Errors to either side of a 95 % interval.
  const Z_95 = 1.959964;

  // ---- theme ----------------------------------------------------------------

  const themeButton = byId("theme");
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light"))
      === "dark";
  const nameTheme = () => {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  themeButton.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  prefersDark.addEventListener("change", nameTheme);
  themeButton.hidden = false;
  nameTheme();

  // Labels of figures fit their room in any font.
  document.fonts.ready.then(() => {
    for (const label of document.querySelectorAll("text[data-room]")) {
      if (label.getComputedTextLength() > label.dataset.room) {
        label.setAttribute("textLength", label.dataset.room);
        label.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
    }
  });

  // Paper shows what the screen folds.
  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...folded()];
    opened.forEach((item) => { item.open = true; });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((item) => { item.open = false; });
  });

  // ---- numbers and elements ---------------------------------------------------

  function showNumber(value, digits = 4, signed = false) {
    if (Number.isNaN(value)) return "\u2013";
    if (!Number.isFinite(value)) return value > 0 ? "\u221e" : `${MINUS}\u221e`;
    const rounded = Number(value.toPrecision(digits));
    const size = Math.abs(rounded);
    if (size === 0) return "0";
    let text;
    if (size >= 1e-4 && size < 1e7) {
      const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
      const [whole, part = ""] = size.toFixed(Math.min(decimals, 20)).split(".");
      const tail = part.replace(/0+$/, "");
      // Below ten thousand it may be a year.
      text = (size < 1e4 ? whole : whole.replace(/\B(?=(\d{3})+$)/g, ",")) + (tail ? `.${tail}` : "");
    } else {
      const [mantissa, exponent] = size.toExponential(digits - 1).split("e");
      const plain = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
      text = `${plain}e${exponent.replace("+", "").replace("-", MINUS)}`;
    }
    return (rounded < 0 ? MINUS : signed ? "+" : "") + text;
  }

  // As many decimals as asked for, so that numbers line up.
  const showFixed = (value, decimals) => {
    const text = Math.abs(value).toFixed(decimals);
    if (value === 0 || Number(text) === 0) return "0";
    return `${value < 0 ? MINUS : "+"}${text}`;
  };

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const place = (value, low, high) => (high > low ? (value - low) / (high - low) : 0.5);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  // ---- the model --------------------------------------------------------------

  const dial = data.dial;
  const model = compileModel(data.model, data.swap, data.link, dial);
  const interval = data.interval ? compileInterval(data.interval, model) : null;
  const percent = data.link === "logit";
  const showMean = (mean) => {
    if (!percent) return showNumber(mean);
    return `${(100 * mean).toFixed(1)}\u202f%`;
  };
  const showChange = (change) => {
    if (!percent) return showNumber(change, 4, true);
    const points = (100 * change).toFixed(1);
    return `${points.startsWith("-") ? points.replace("-", MINUS) : `+${points}`} points`;
  };

  // ---- how unusual a combination is ---------------------------------------------

  const support = data.support;

  // Squared distance from the mean of the rows, in units of their joint spread.
  function distanceOf(at) {
    if (!support) return 0;
    const z = support.owner.map((feature, c) => {
      const value = at[feature];
      const of = support.value[c];
      const raw = of === null ? (Number.isNaN(value) ? model.reference[feature] : value)
        : Number(of === -1 ? Number.isNaN(value) : value === of);
      return (raw - support.mean[c]) / support.scale[c];
    });
    let sum = 0;
    let place = 0;
    for (let c = 0; c < z.length; c += 1) {
      for (let d = c; d < z.length; d += 1) {
        sum += (c === d ? 1 : 2) * support.precision[place] * z[c] * z[d];
        place += 1;
      }
    }
    return sum;
  }

  // Combinations further out than nearly all rows, and than the one that is set, are
  // not proposed.
  const farthest = () => Math.max(support ? support.percentiles[99] : 0, distanceOf(values));

  function tellUnusual() {
    const told = byId("unusual");
    if (!support) { told.textContent = ""; return; }
    const distance = distanceOf(values);
    const share = support.percentiles.filter((each) => each < distance).length;
    const beyond = distance > support.percentiles[100] * (1 + 1e-5);
    told.dataset.value = distance;
    told.classList.toggle("warned", beyond);
    told.textContent = beyond
      ? "No row is as unusual as this combination: the prediction is a guess."
      : share < 50 ? "A usual combination of values."
        : `A combination more unusual than ${Math.min(share, 99)}\u202f% of the rows.`;
  }

  // What the other classes say follows from the values, too: log-odds less own score.
  const every = data.every.map((record) => compileModel(record, [], data.link));
  const offsetAt = (at, own) => {
    if (!every.length) return own;
    const scores = every.map((one) => one.eta(at));
    const others = scores.filter((_, place) => place !== data.place);
    const most = Math.max(...others);
    const sum = others.reduce((total, score) => total + Math.exp(score - most), 0);
    return scores[data.place] - most - Math.log(sum) - model.eta(at);
  };

  const fromRow = (values) => values.map((value) => (value === null ? NaN : value));
  const starts = [
    { label: "the reference", values: model.reference, offset: data.baseOffset },
    ...data.rows.map((row) => ({ ...row, values: fromRow(row.values) })),
  ];
  let start = starts[0];
  let values = [...start.values];
  let offset = start.offset;
  const controls = [];

  // ---- one control per feature ------------------------------------------------

  const WIDTH = 200;
  const HEIGHT = 44;

  // Values at which the response to a feature is looked at.
  function gridOf(control) {
    if (control.levels) return control.levels.map((_, code) => code);
    const { low, high, whole } = control;
    if (whole && high - low <= MAX_WHOLE) {
      return Array.from({ length: high - low + 1 }, (_, step) => low + step);
    }
    const grid = Array.from({ length: GRID }, (_, step) => low + ((high - low) * step) / (GRID - 1));
    grid[GRID - 1] = high;
    return whole ? [...new Set(grid.map(Math.round))] : grid;
  }

  // Decimals that tell a thousand values of the range apart.
  const decimalsOf = ({ low, high, whole }) =>
    (whole || high === low ? 0 : clamp(3 - Math.floor(Math.log10(high - low)), 0, 15));
  const roundTo = (value, decimals) => Number(value.toFixed(decimals));

  function showValue(control, value) {
    if (Number.isNaN(value)) return "missing";
    return control.levels ? control.levels[value] : showNumber(value);
  }

  function makeControl(spec) {
    const control = { ...spec, grid: gridOf(spec), decimals: spec.levels ? 0 : decimalsOf(spec) };
    const id = `feature-${spec.feature}`;
    const name = make("bdi", { class: "feature-name" }, spec.name);
    const field = spec.levels
      ? make("select", { id }, ...spec.levels.map((level, code) => make("option", { value: code }, level)))
      : make("input", { id, type: "number", step: "any", inputmode: "decimal" });
    const slider = spec.levels ? null : make("input", {
      type: "range",
      min: spec.low,
      max: spec.high,
      step: spec.whole ? 1 : "any",
      "aria-label": `${spec.name}, slider`,
      disabled: spec.high === spec.low,
    });
    const missing = spec.mayMiss
      ? make("input", { type: "checkbox", id: `${id}-missing` })
      : null;
    const undo = make("button", { type: "button", class: "quiet undo", hidden: true,
      "aria-label": `Put ${spec.name} back` }, "undo");
    const was = make("span", { class: "note was" });
    const part = make("output", { class: "part num", for: id });
    const reach = make("span", { class: "reach" });
    const bar = draw("rect", { y: 4, height: 12, class: "bar" });
    const barBox = draw("svg", { class: "cell", viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" },
      draw("line", { class: "zero", x1: 50, x2: 50, y1: 0, y2: 20 }), bar);
    const response = draw(spec.levels ? "g" : "path", { class: "response" });
    const dot = draw("path", { class: "here" });
    const curve = draw("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      ...densityBars(spec.counts), response, dot);
    const item = make("li", { class: "control", "data-feature": spec.feature },
      make("div", { class: "control-head" }, make("label", { for: id }, name), was, undo),
      make("div", { class: "control-dial" }, curve, ...(slider ? [slider] : [])),
      make("div", { class: "control-field" }, field,
        ...(missing ? [make("label", { class: "missing" }, missing, "missing")] : [])),
      make("div", { class: "control-part" }, barBox, part, ...(data.errors ? [reach] : [])));

    const set = (value) => { values[spec.feature] = value; update(); };
    if (slider) {
      slider.addEventListener("input", () => {
        const at = place(Number(slider.value), spec.low, spec.high);
        // The ends are exact, the rest is rounded to what can be read.
        set(at < 1e-6 ? spec.low : at > 1 - 1e-6 ? spec.high
          : clamp(roundTo(Number(slider.value), control.decimals), spec.low, spec.high));
      });
      field.addEventListener("input", () => {
        if (field.value !== "" && Number.isFinite(field.valueAsNumber)) set(field.valueAsNumber);
      });
      field.addEventListener("change", () => showControl(control));
    } else {
      field.addEventListener("change", () => set(Number(field.value)));
    }
    missing?.addEventListener("change", () => {
      const before = start.values[spec.feature];
      set(missing.checked ? NaN : Number.isNaN(before) ? model.reference[spec.feature] : before);
    });
    undo.addEventListener("click", () => {
      set(start.values[spec.feature]);
      field.focus();
    });
    return Object.assign(control, { item, field, slider, missing, undo, was, part, reach, bar, response, dot, set });
  }

  function densityBars(counts) {
    const width = WIDTH / counts.length;
    return counts.map((count, at) => {
      const height = (HEIGHT * 0.7 * count) / 100;
      return draw("rect", { class: "density", x: at * width + 0.1 * width, width: 0.8 * width, y: HEIGHT - height, height });
    });
  }

  const acrossOf = (control, value) => {
    if (control.levels) return (WIDTH * (value + 0.5)) / control.levels.length;
    return WIDTH * clamp(place(value, control.low, control.high), 0, 1);
  };

  function showControl(control) {
    const value = values[control.feature];
    const before = start.values[control.feature];
    const gone = Number.isNaN(value);
    control.item.dataset.value = value;
    if (control.missing) control.missing.checked = gone;
    control.field.disabled = gone;
    if (control.slider) {
      control.slider.disabled = gone || control.high === control.low;
      if (!gone) {
        // Whole steps would put the handle beside a mean such as 0.67.
        control.slider.step = control.whole && Number.isInteger(value) ? 1 : "any";
        control.slider.value = value;
        control.slider.setAttribute("aria-valuetext", showNumber(value, 5));
      }
      const inside = value >= control.low && value <= control.high;
      const shown = gone ? ""
        : String(inside ? roundTo(value, control.whole ? 3 : Math.min(control.decimals + 1, 15)) : value);
      const typed = control.field.valueAsNumber;
      // A number being typed stays as it is.
      if (document.activeElement !== control.field || (typed !== value && !Number.isNaN(typed))) {
        control.field.value = shown;
      }
    } else {
      control.field.value = gone ? "" : value;
    }
    const outside = control.slider && (value < control.least || value > control.most);
    const changed = !Object.is(value, before);
    control.item.classList.toggle("outside", Boolean(outside));
    control.item.classList.toggle("changed", changed);
    control.undo.hidden = !changed;
    control.was.textContent = outside
      ? `outside the training range, ${showNumber(control.least)} to ${showNumber(control.most)}`
      : changed ? `was ${showValue(control, before)}` : "";
  }

  // ---- the dial between the model without bends and the bent one ------------------

  let turned = dial ? dial.bend : 1;
  const isTurned = () => Boolean(dial && turned !== dial.bend);

  // Score on rows held out, between positions by interpolation.
  function scoreAt(bend) {
    const last = dial.scores.length - 1;
    const at = clamp(bend * last, 0, last);
    const below = Math.min(Math.floor(at), last - 1);
    return dial.scores[below] + (at - below) * (dial.scores[below + 1] - dial.scores[below]);
  }

  function tellDial() {
    const told = byId("bend-told");
    const show = (bend) =>
      `${(100 * scoreAt(bend)).toFixed(1).replace("-", MINUS)}\u202f%`;
    const fitted = showNumber(dial.bend, 2);
    told.dataset.value = scoreAt(turned);
    told.textContent = isTurned()
      ? `At ${showNumber(turned, 2)}: R\u00b2 ${show(turned)} on rows left out in turn. `
        + `As fitted, at ${fitted}: ${show(dial.bend)}.`
      : `At ${fitted}, as fitted: R\u00b2 ${show(turned)} on rows left out in turn. With none: ${show(0)}.`;
  }

  function turnDial(bend) {
    turned = bend;
    model.setBend(turned / dial.bend);
    tellDial();
  }

  function addDial() {
    const slider = byId("bend");
    byId("bend-box").hidden = false;
    slider.value = dial.bend;
    slider.addEventListener("input", () => {
      // Positions are steps; the fit's own is exact.
      const near = Math.abs(Number(slider.value) - dial.bend) < 0.005;
      turnDial(near ? dial.bend : Number(slider.value));
      update();
    });
    tellDial();
  }

  // ---- what follows from the values -------------------------------------------

  let partScale = 0;

  function niceCeiling(value) {
    if (!(value > 0)) return 1;
    const power = 10 ** Math.floor(Math.log10(value));
    const sizes = [1, 1.5, 2, 3, 4, 5, 7, 10].map((size) => size * power);
    return sizes.find((size) => size >= value * (1 - 1e-9));
  }

  function update() {
    const parts = model.explain(values);
    const total = parts.reduce((sum, part) => sum + part, 0);
    const own = offsetAt(values, offset);
    const eta = model.baseValue + own + total;
    const mean = model.mean(eta);
    const first = offsetAt(start.values, start.offset);
    const before = model.mean(model.eta(start.values, first));
    const prediction = byId("prediction");
    prediction.textContent = showMean(mean);
    prediction.dataset.value = mean;
    prediction.dataset.eta = eta;
    const moved = offset !== start.offset
      || values.some((value, j) => !Object.is(value, start.values[j]));
    const expected = byId("expected");
    expected.hidden = !interval || isTurned();
    if (!expected.hidden) {
      const [low, high] = interval(values, eta);
      expected.dataset.low = low;
      expected.dataset.high = high;
      expected.textContent = `expected between ${showMean(low)} and ${showMean(high)}: `
        + `${data.interval.level} of all rows lie within their intervals`;
    }
    byId("change").textContent = !moved
      ? (isTurned() ? "as at the start, but for the dependence" : "as at the start")
      : `${showChange(mean - before)} from ${showMean(before)} at the start`;
    const name = every.length ? "other classes" : "offset";
    const known = own === 0 ? "" : `, ${name} ${showNumber(own, 4, true)}`;
    const tail = data.link === "identity" ? "" : ` ${data.etaName}`;
    byId("sum").textContent = `base value ${showNumber(model.baseValue)}${known}, `
      + `contributions ${showNumber(total, 4, true)}; together ${showNumber(eta)}${tail}`;
    tellUnusual();
    const largest = Math.max(...controls.map(({ feature }) => Math.abs(parts[feature])), 0);
    // The scale holds still while values move, but not after an absurd one is mended.
    const needed = niceCeiling(largest);
    if (needed > partScale || needed < partScale / 4) partScale = needed;
    const decimals = clamp(3 - Math.ceil(Math.log10(partScale)), 0, 12);
    // What is known is known of the model that was fitted.
    const errors = data.errors && !isTurned() ? model.errorsOf(values, data.errors) : null;
    byId("reach-key").hidden = !errors;
    for (const control of controls) {
      const part = parts[control.feature];
      const reach = errors ? Z_95 * errors[control.feature] : 0;
      control.reach.textContent = reach > 0 ? `\u00b1 ${showNumber(reach, 2)}` : "";
      control.reach.dataset.value = reach;
      const width = (50 * Math.abs(part)) / partScale;
      control.part.textContent = showFixed(part, decimals);
      control.part.dataset.value = part;
      control.bar.setAttribute("class", `bar ${part < 0 ? "minus" : "plus"}`);
      control.bar.setAttribute("x", part < 0 ? 50 - width : 50);
      control.bar.setAttribute("width", width);
      showControl(control);
    }
    scheduleResponses(mean);
  }

  // Responses to each feature are computed one feature at a time, so that dragging
  // stays smooth; a later change abandons what is under way.
  let generation = 0;

  function scheduleResponses(mean) {
    generation += 1;
    const mine = generation;
    byId("moves").setAttribute("aria-busy", "true");
    const queue = [...controls];
    const step = () => {
      if (mine !== generation) return;
      const begin = performance.now();
      while (queue.length && performance.now() - begin < 12) {
        const control = queue.shift();
        const trial = [...values];
        control.means = control.grid.map((value) => {
          trial[control.feature] = value;
          return model.mean(model.eta(trial, offsetAt(trial, offset)));
        });
        control.distances = control.grid.map((value) => {
          trial[control.feature] = value;
          return distanceOf(trial);
        });
      }
      if (queue.length) { setTimeout(step, 0); return; }
      drawResponses(mean);
      listMoves(mean);
      byId("moves").setAttribute("aria-busy", "false");
    };
    setTimeout(step, 0);
  }

  function drawResponses(mean) {
    const all = controls.flatMap((control) => control.means).concat(mean).filter(Number.isFinite);
    const low = Math.min(...all);
    const high = Math.max(...all);
    const up = (value) => HEIGHT - 5 - (HEIGHT - 10) * place(value, low, high);
    for (const control of controls) {
      const points = control.grid.map((value, at) =>
        [acrossOf(control, value), up(control.means[at])].map((c) => c.toFixed(1)));
      if (control.levels) {
        control.response.replaceChildren(...points.map(([x, y]) => draw("path", { class: "level-dot", d: `M${x} ${y}h0` })));
      } else {
        control.response.setAttribute("d", `M${points.map((point) => point.join(" ")).join("L")}`);
      }
      const value = values[control.feature];
      control.dot.setAttribute("d", Number.isNaN(value) ? ""
        : `M${acrossOf(control, value).toFixed(1)} ${up(mean).toFixed(1)}h0`);
    }
  }

  const aim = () => document.querySelector("input[name=aim]:checked").value;
  const AIMS = {
    either: (change) => Math.abs(change),
    higher: (change) => change,
    lower: (change) => -change,
  };

  function listMoves(mean) {
    const gain = AIMS[aim()];
    const most = farthest();
    const moves = controls.map((control) => {
      let best = { gain: 0 };
      if (data.fixed.includes(control.feature)) return best;
      control.grid.forEach((value, at) => {
        if (control.distances[at] > most) return;
        const change = control.means[at] - mean;
        // Rounding is no gain.
        if (gain(change) > best.gain + 1e-12 * Math.abs(mean)) {
          best = { control, value, change, gain: gain(change) };
        }
      });
      return best;
    }).filter((move) => move.gain > 0);
    moves.sort((a, b) => b.gain - a.gain);
    const largest = moves.length ? moves[0].gain : 1;
    const decimals = clamp(3 - Math.floor(Math.log10(largest)), 0, 12);
    const show = (change) => (percent || largest >= 1e7 ? showChange(change)
      : showFixed(change, decimals));
    byId("moves").replaceChildren(...moves.slice(0, MOVES).map((move) => {
      const { control, value, change } = move;
      const width = (100 * move.gain) / largest;
      const item = make("li", { "data-feature": control.feature },
        make("button", { type: "button", class: "move",
          "aria-label": `Set ${control.name} to ${showValue(control, value)}: ${showChange(change)}` },
        make("span", { class: "move-name" }, make("bdi", { class: "feature-name" }, control.name),
          make("span", { class: "note" }, ` to ${showValue(control, value)}`)),
        make("span", { class: "num" }, show(change))),
        draw("svg", { class: "cell thin", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
          draw("rect", { class: `bar ${change < 0 ? "minus" : "plus"}`, width, height: 4, x: 0, y: 0 })));
      item.dataset.value = value;
      item.dataset.change = change;
      item.firstChild.addEventListener("click", () => {
        control.set(value);
        control.field.focus({ preventScroll: true });
      });
      return item;
    }));
    if (!moves.length) {
      byId("moves").replaceChildren(make("li", { class: "note" }, "Nothing within the ranges."));
    }
  }

  function begin(at) {
    start = starts[at];
    values = [...start.values];
    offset = start.offset;
    partScale = 0;
    if (offsetField) offsetField.value = offset;
    update();
  }

  // ---- assemble ----------------------------------------------------------------

  let offsetField = null;
  if (data.hasOffset) {
    offsetField = make("input", { id: "offset", type: "number", step: "any", value: 0 });
    offsetField.addEventListener("input", () => {
      if (Number.isFinite(offsetField.valueAsNumber)) { offset = offsetField.valueAsNumber; update(); }
    });
    byId("reset").after(make("label", { for: "offset" },
      data.link === "log" ? "Offset (logarithm of the exposure)" : "Offset"), offsetField);
  }
  if (dial) addDial();
  for (const spec of data.controls) controls.push(makeControl(spec));
  const shown = controls.length > data.shown + 2 ? data.shown : controls.length;
  byId("controls").append(...controls.slice(0, shown).map(({ item }) => item));
  if (controls.length > shown) {
    byId("more-controls").append(...controls.slice(shown).map(({ item }) => item));
    byId("more").querySelector("summary").textContent =
      `${controls.length - shown} more features, weaker ones`;
    byId("more").hidden = false;
  }
  byId("start").append(...starts.map(({ label }, at) => make("option", { value: at }, label)));
  byId("start").addEventListener("change", (event) => begin(Number(event.target.value)));
  byId("reset").addEventListener("click", () => {
    if (dial) {
      byId("bend").value = dial.bend;
      turnDial(dial.bend);
    }
    begin(Number(byId("start").value));
  });
  document.querySelectorAll("input[name=aim]").forEach((input) =>
    input.addEventListener("change", () => listMoves(Number(byId("prediction").dataset.value))));
  byId("prediction-name").textContent = data.name;
  byId("what-if-off").hidden = true;
  byId("what-if-app").hidden = false;
  begin(0);
})();

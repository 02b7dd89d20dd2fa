"use strict";

// The fitted model in plain JavaScript: the arithmetic of `sknimo.model`, in doubles.
// A record is what `sknimo.io.model_record` describes. Values are those of a numeric
// table: a level is its code, a missing value is NaN.

// Terms of one value, by the kind of basis; all are zero at the reference.
const BASES = {
  linear: ({ reference, scale, residue }) => (x) => {
    if (scale === 0) return [];
    const above = x - reference;
    return [(above === 0 ? 0 : above - residue) / scale];
  },

  polynomial: ({ reference, scale, spread }) => (x) => {
    const z = (x - reference) / scale;
    return [z, (z * z) / spread];
  },

  spline: ({ reference, scale, knots, transform }) => {
    const last = knots[knots.length - 1];
    const inner = knots.slice(0, -1);
    // Natural cubic spline in truncated powers, straight beyond the last knot: z, then
    // one column per inner knot.
    const raw = (z) => {
      const inside = Math.min(z, last);
      const pieces = inner.map((knot) => {
        const above = Math.max(inside - knot, 0);
        return [above ** 3 / (last - knot), (3 * above ** 2) / (last - knot)];
      });
      const [base, tilt] = pieces.pop();
      return [z, ...pieces.map(([value, slope]) => value - base + (z - inside) * (slope - tilt))];
    };
    const origin = raw(0);
    return (x) => {
      const above = raw((x - reference) / scale).map((value, k) => value - origin[k]);
      return transform[0].map((_, term) =>
        above.reduce((sum, value, k) => sum + value * transform[k][term], 0));
    };
  },

  ramps: ({ reference, scale, edges, transform }) => {
    // How much of each piece lies below x; written so that a missing value stays missing.
    const risen = (x) => edges.slice(1).map((high, i) => {
      const share = (x - edges[i]) / (high - edges[i]);
      return share < 0 ? 0 : share > 1 ? 1 : share;
    });
    const origin = risen(reference);
    return (x) => {
      const z = (x - reference) / scale;
      const ramps = risen(x).map((value, i) => value - origin[i]);
      if (transform === null) return [z, ...ramps];
      return [z, ...transform[0].map((_, term) =>
        ramps.reduce((sum, value, i) => sum + value * transform[i][term], 0))];
    };
  },

  levels: ({ values, baseline, scale }) => {
    if (scale === 0) return () => [];
    const codes = values.map((_, code) => code).filter((code) => code !== baseline);
    return (x) => codes.map((code) => (x === code ? 1 / scale : 0));
  },

  pooled_levels: ({ baseline, scale, acts_as }) => {
    const codes = acts_as.map((_, code) => code)
      .filter((code) => code !== baseline && acts_as[code] === code);
    return (x) => codes.map((code) => (acts_as[x] === code ? 1 / scale : 0));
  },

  or_missing: ({ basis, indicator_scale }) => {
    const terms = compileBasis(basis);
    const reference = referenceOf(basis);
    if (indicator_scale === 0) return (x) => terms(Number.isNaN(x) ? reference : x);
    return (x) => Number.isNaN(x)
      ? [...terms(reference), 1 / indicator_scale]
      : [...terms(x), 0];
  },

  rank_gauss: ({ reference, points, scores }) => {
    const score = (x) => {
      const last = points.length - 1;
      if (x <= points[0]) return scores[0];
      if (x >= points[last]) return scores[last];
      let low = 0;
      let high = last;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle] <= x) low = middle; else high = middle;
      }
      const slope = (scores[high] - scores[low]) / (points[high] - points[low]);
      return scores[low] + slope * (x - points[low]);
    };
    const origin = score(reference);
    return (x) => [score(x) - origin];
  },

  drawn: ({ basis, centre, width }) => {
    const terms = compileBasis(basis);
    return (x) => terms(Math.asinh((x - centre) / width));
  },

  clipped: ({ basis, low, high }) => {
    const terms = compileBasis(basis);
    // Written so that a missing value stays missing.
    return (x) => terms(x < low ? low : x > high ? high : x);
  },
};

function compileBasis(record) {
  return BASES[record.kind](record);
}

function referenceOf(record) {
  if ("baseline" in record) return record.baseline;
  if ("origin" in record) return record.origin;
  return "basis" in record ? referenceOf(record.basis) : record.reference;
}

const MEANS = {
  identity: (eta) => eta,
  log: (eta) => Math.exp(eta),
  logit: (eta) => 1 / (1 + Math.exp(-eta)),
};

const dot = (a, b) => {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
  return sum;
};

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// One member's network: `network(inputs)` returns the function from a feature to its g.
// The first layer of all inputs is computed once; each feature subtracts its own columns.
function compileNetwork(spec, flat) {
  const [h1, h2] = spec.hidden;
  const owner = spec.input_feature;
  const bits = spec.code.length ? spec.code[0].length : 0;
  let begin = 0;
  const matrix = (rows, columns) => {
    const out = [];
    for (let row = 0; row < rows; row += 1) {
      out.push(Float64Array.from(flat.slice(begin, begin + columns)));
      begin += columns;
    }
    return out;
  };
  const vector = (length) => matrix(1, length)[0];
  const first = matrix(h1, owner.length);
  const codeWeight = matrix(h1, bits);
  const bias = vector(h1);
  const second = matrix(h2, h1);
  const secondBias = vector(h2);
  // One output for all features, or one for each number of the code.
  const out = matrix(h2, spec.own_out ? bits : 1);
  const live = owner.map((_, column) => column)
    .filter((column) => first.some((row) => row[column] !== 0));
  const own = spec.code.map((_, feature) =>
    (spec.mask ? live.filter((column) => owner[column] === feature) : []));

  // What the network gives at the reference is subtracted layer by layer.
  const atReference = spec.code.map((code) => {
    const shift = bias.map((value, unit) => value + dot(codeWeight[unit], code));
    const level = shift.map(Math.tanh);
    const base = secondBias.map((value, unit) => value + dot(second[unit], level));
    const heads = out.map((row) => (spec.own_out ? dot(row, code) : row[0]));
    return { shift, level, base, sine: base.map(Math.sin), heads };
  });

  return (inputs) => {
    const used = live.filter((column) => inputs[column] !== 0);
    const all = first.map((row) => {
      let sum = 0;
      for (const column of used) sum += row[column] * inputs[column];
      return sum;
    });
    const rise = new Float64Array(h1);
    return (feature) => {
      const { shift, level, base, sine, heads } = atReference[feature];
      for (let unit = 0; unit < h1; unit += 1) {
        let hidden = all[unit];
        for (const column of own[feature]) hidden -= first[unit][column] * inputs[column];
        rise[unit] = Math.tanh(hidden + shift[unit]) - level[unit];
      }
      let bend = 0;
      for (let unit = 0; unit < h2; unit += 1) {
        bend += heads[unit] * (Math.sin(base[unit] + dot(second[unit], rise)) - sine[unit]);
      }
      return bend;
    };
  };
}

// A model that explains itself. `swap` lists [t, u, amount]: the product of terms t and
// u moves by this amount from the channel of t to that of u. `straight` is the model
// without bends: `setBend(ratio)` goes on from there, 1 is the model itself.
function compileModel(record, swap, link, straight = null) {
  const bases = record.features.map((feature) => compileBasis(feature.basis));
  const inputBases = record.features.map((feature) => compileBasis(feature.input));
  const reference = record.features.map((feature) => referenceOf(feature.basis));
  const fitted = average(record.intercept);
  let ratio = 1;
  const members = record.coef.map((coef, m) => ({
    coef,
    modulated: record.modulated[m],
    network: compileNetwork(
      record.spec,
      record.single ? record.params[m].map(Math.fround) : record.params[m],
    ),
  }));

  // Contribution of every feature as the network has it, and the terms.
  const split = (values) => {
    const terms = bases.map((basis, j) => basis(values[j]));
    const inputs = inputBases.flatMap((basis, j) => basis(values[j]));
    const active = members.map((member) => ({ ...member, modulation: member.network(inputs) }));
    let begin = 0;
    const bent = (member, j) => (member.modulated[j] ? 1 + member.modulation(j) : 1);
    const parts = terms.map((own, j) => {
      const at = begin;
      begin += own.length;
      if (own.every((term) => term === 0)) return 0;
      let total = 0;
      for (const member of active) {
        let effect = 0;
        for (let t = 0; t < own.length; t += 1) effect += member.coef[at + t] * own[t];
        if (effect !== 0) effect *= bent(member, j);
        total += effect;
      }
      total /= members.length;
      if (ratio === 1) return total;
      const line = own.reduce((sum, term, t) => sum + straight.coef[at + t] * term, 0);
      return ratio * total + (1 - ratio) * line;
    });
    return { parts, terms, factor: (m, j) => bent(active[m], j) };
  };
  // Standard error of every contribution: of the terms, bent as the average is, and of
  // how far members lie apart.
  const errorsOf = (values, known) => {
    const { terms, factor } = split(values);
    let begin = 0;
    return terms.map((own, j) => {
      const at = begin;
      begin += own.length;
      if (own.every((term) => term === 0)) return 0;
      const factors = members.map((_, m) => factor(m, j));
      const middle = own.map((_, t) => average(members.map(({ coef }) => coef[at + t])));
      const local = own.map((_, t) =>
        average(members.map(({ coef }, m) => coef[at + t] * factors[m])));
      const size = dot(middle, middle);
      const bend = size > 0 ? dot(local, middle) / size : 1;
      const moved = own.map((term) => term * Math.min(Math.max(bend, -known.most), known.most));
      const block = known.blocks[j];
      let variance = dot(moved, block.map((row) => dot(row, moved)));
      const part = (m) => factors[m] * dot(members[m].coef.slice(at, at + own.length), own);
      const alone = known.members.map((some, k) =>
        some.reduce((sum, m) => sum + part(m), 0) / known.scale[k]);
      const mean = dot(known.share, alone);
      alone.forEach((one, k) => {
        variance += known.count * known.share[k] * (one - mean) ** 2;
      });
      return Math.sqrt(Math.max(variance, 0));
    });
  };
  const base = () => (ratio === 1 ? fitted
    : ratio * fitted + (1 - ratio) * straight.intercept);

  const owners = bases.flatMap((basis, j) => basis(reference[j]).map(() => j));
  const eta = (values, offset = 0) =>
    split(values).parts.reduce((sum, part) => sum + part, base() + offset);
  const explain = (values) => {
    const { parts, terms } = split(values);
    const flat = terms.flat();
    for (const [t, u, amount] of swap) {
      const moved = ratio * amount * flat[t] * flat[u];
      parts[owners[t]] -= moved;
      parts[owners[u]] += moved;
    }
    return parts;
  };
  const termsOf = (values) => bases.flatMap((basis, j) => basis(values[j]));
  const setBend = (to) => { ratio = to; };
  return {
    reference, get baseValue() { return base(); }, eta, explain, errorsOf, termsOf, setBend, mean: MEANS[link],
  };
}

// Where the next observation is expected: quantiles of scores of rows held out, times
// the spread of the family and a width that follows the row.
function compileInterval(record, model) {
  return (values, eta) => {
    const mean = model.mean(eta);
    const columns = record.coef.length > 1 ? [...model.termsOf(values), eta] : [eta];
    let width = record.log[0];
    if (record.coef.some((slope) => slope !== 0)) {
      columns.forEach((x, d) => { width += (x - record.centre[d]) * record.coef[d]; });
      width = Math.min(Math.max(width, record.log[1]), record.log[2]);
    }
    const spread = Math.max(mean, 0) ** record.power * Math.exp(width);
    let [low, high] = record.ends.map((end) => mean + spread * end);
    if (record.whole) [low, high] = [Math.ceil(low - 1e-12), Math.floor(high + 1e-12)];
    if (record.positive) [low, high] = [Math.max(low, 0), Math.max(high, 0)];
    return [low, Math.max(low, high)];
  };
}

// The playground of the report: a 3x3 matching, its distribution under noise, its maximisers and its gradients.
// Everything above the state is pure. A 3x3 matrix is an array of 9 numbers, row by row.
"use strict";

window.directlossPlayground = (() => {
  const EULER_GAMMA = 0.5772156649015329;
  const REFERENCE_KEY = 20210718n; // of the draws behind the exact values
  const REFERENCE_DRAWS = 20000;
  const SMALLEST_EPSILON = 0.05;
  const LARGEST_EPSILON = 10;
  const LARGEST_ENTRY = 99;
  const HAMMING = [0, 1, 1, 1, 0, 1, 1, 1, 0];
  const PRESETS = {
    wrong: [0.2, 3.1, 0.7, 0.4, 0.5, 2.6, 2.8, 0.1, 0.3],
    tied: [0.2, 0.3, 0, 0.1, 0, 0.3, 0.4, 0.1, 0.2],
    right: [2.9, 0.4, 0.1, 0.3, 2.4, 0.6, 0, 0.5, 3.2],
  };
  const PERMUTATIONS = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]; // each row's column
  const ONES = PERMUTATIONS.map((columns) => columns.map((column, row) => 3 * row + column));
  const indices = [...PERMUTATIONS.keys()];
  const entries = [...HAMMING.keys()];
  const WITH = entries.map((entry) => indices.filter((index) => ONES[index].includes(entry)));
  const WITHOUT = entries.map((entry) => indices.filter((index) => !ONES[index].includes(entry)));

  // ---- noise: the library's own draws ----

  /** The key that `torch.Generator().manual_seed(seed)` gives the library: 62 bits of a Mersenne twister's first 64. */
  function torchKey(seed) {
    const words = new Uint32Array(399);
    words[0] = seed;
    for (let i = 1; i < words.length; i++) {
      words[i] = Math.imul(1812433253, words[i - 1] ^ (words[i - 1] >>> 30)) + i;
    }
    const output = (i) => {
      const y = (words[i] & 0x80000000) | (words[i + 1] & 0x7fffffff);
      let word = words[i + 397] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
      word ^= word >>> 11;
      word ^= (word << 7) & 0x9d2c5680;
      word ^= (word << 15) & 0xefc60000;
      return BigInt((word ^ (word >>> 18)) >>> 0);
    };
    return BigInt.asUintN(62, (output(0) << 32n) | output(1));
  }

  /** The high word of a product of 32-bit words. */
  function multiplyHigh(a, b) {
    const [low, high] = [b & 0xffff, b >>> 16];
    const middle = (a >>> 16) * low + (((a & 0xffff) * low) >>> 16);
    const other = (a & 0xffff) * high + (middle & 0xffff);
    return (a >>> 16) * high + (middle >>> 16) + (other >>> 16);
  }

  /** Philox4x32-10: four words of 32 random bits for one counter below 2^32. */
  function philox(counter, lowKey, highKey) {
    let [a, b, c, d] = [counter, 0, 0, 0];
    for (let round = 0; round < 10; round++) {
      const first = multiplyHigh(0xcd9e8d57, c) ^ b ^ (lowKey + Math.imul(round, 0x9e3779b9));
      const third = multiplyHigh(0xd2511f53, a) ^ d ^ (highKey + Math.imul(round, 0xbb67ae85));
      b = Math.imul(0xcd9e8d57, c);
      d = Math.imul(0xd2511f53, a);
      a = first;
      c = third;
    }
    return [a, b, c, d];
  }

  /** `count` zero-mean Gumbel draws for a key of 64 bits (a BigInt, or what BigInt() takes), as noise_kernel.py's. */
  function gumbel(key, count) {
    const lowKey = Number(BigInt.asUintN(32, BigInt(key)));
    const highKey = Number(BigInt.asUintN(32, BigInt(key) >> 32n));
    const quarter = Math.ceil(count / 4);
    const draws = new Float32Array(4 * quarter);
    for (let counter = 0; counter < quarter; counter++) {
      const words = philox(counter, lowKey, highKey);
      for (let part = 0; part < 4; part++) {
        const uniform = ((words[part] >>> 9) + 0.5) / 2 ** 23;
        draws[part * quarter + counter] = -Math.log(Math.fround(-Math.log(uniform))) - EULER_GAMMA;
      }
    }
    return draws.subarray(0, count);
  }

  // ---- the matching and its distribution ----

  function along(matrix, index) {
    const [one, two, three] = ONES[index];
    return matrix[one] + matrix[two] + matrix[three];
  }

  /** The first of the best permutations, among all or some. */
  function best(values, among = indices) {
    let first = among[0];
    for (const index of among) if (values[index] > values[first]) first = index;
    return first;
  }

  const maximiser = (theta) => best(indices.map((index) => along(theta, index)));

  /** Proportional to exp(<scores, y> / sigma); its limit, uniform over the best, at sigma = 0. */
  function gibbs(scores, sigma) {
    const values = indices.map((index) => along(scores, index));
    const top = Math.max(...values);
    const weights = values.map((value) => (value === top ? 1 : sigma && Math.exp((value - top) / sigma)));
    const total = weights.reduce((sum, weight) => sum + weight);
    return weights.map((weight) => weight / total);
  }

  let reference = null;

  /**
   * The distribution of the maximiser and the gradients of its expected loss, with their standard errors.
   *
   * The noise of one entry e at a time is integrated out. Given all other noise, let V1 be the best value of the
   * permutations through e, less theta_e, and V0 that of the others, with losses l1 and l0. The maximiser goes
   * through e where theta_e > V0 - V1, that is, where gamma_e > z = (V0 - V1 - mu_e) / sigma. With F and f the
   * distribution function and the density of gamma_e, it does so with probability 1 - F(z), and
   *
   *     dE[loss]/dmu_e = E[(l1 - l0) f(z)] / sigma,     dE[loss]/dsigma = sum_e E[(l1 - l0) z f(z)] / sigma.
   */
  function exact(scores, cost, sigma) {
    // 6 probabilities, 9 entries of the gradient for the scores, 1 of the gradient for sigma
    const [sum, squares] = [new Float64Array(16), new Float64Array(16)];
    if (sigma === 0) {
      sum[maximiser(scores)] = REFERENCE_DRAWS;
    } else {
      reference ??= gumbel(REFERENCE_KEY, 9 * REFERENCE_DRAWS);
      const losses = indices.map((index) => along(cost, index));
      const [theta, values, one] = [new Float64Array(9), new Float64Array(6), new Float64Array(16)];
      for (let start = 0; start < reference.length; start += 9) {
        for (let entry = 0; entry < 9; entry++) theta[entry] = scores[entry] + sigma * reference[start + entry];
        for (const index of indices) values[index] = along(theta, index);
        one.fill(0);
        for (let entry = 0; entry < 9; entry++) {
          const through = best(values, WITH[entry]);
          const around = best(values, WITHOUT[entry]);
          const z = (values[around] - values[through] + theta[entry] - scores[entry]) / sigma;
          const density = Math.exp(-z - EULER_GAMMA); // over F
          const below = Math.exp(-density);
          one[through] += (1 - below) / 9;
          one[around] += below / 9;
          // Where F underflows, the density is 0, whatever its other factor says.
          const slope = below && ((losses[through] - losses[around]) * density * below) / sigma;
          one[6 + entry] = slope;
          if (slope) one[15] += z * slope; // z may be infinite
        }
        for (let k = 0; k < 16; k++) {
          sum[k] += one[k];
          squares[k] += one[k] * one[k];
        }
      }
    }
    const mean = Array.from(sum, (total) => total / REFERENCE_DRAWS);
    const error = mean.map((m, k) => Math.sqrt(Math.max(squares[k] / REFERENCE_DRAWS - m * m, 0) / REFERENCE_DRAWS));
    const named = (list) => ({ probabilities: list.slice(0, 6), scores: list.slice(6, 15), sigma: list[15] });
    // Without noise the mean is the truth, not an estimate.
    return { ...named(mean), errors: named(sigma === 0 ? mean.map(() => 0) : error) };
  }

  // ---- the estimator ----

  /** The maximisers of theta + step * cost for each step: 0, epsilon and, with both sides, -epsilon. */
  function maximisers({ scores, cost, sigma, epsilon, sides }, noise) {
    const steps = sides === "one" ? [0, epsilon] : [0, epsilon, -epsilon];
    return steps.map((step) => {
      const theta = scores.map((score, entry) => score + sigma * noise[entry] + step * cost[entry]);
      return { step, theta, permutation: maximiser(theta) };
    });
  }

  /** The mean over samples of (y_eps - y) / eps, or of the central difference, and of its product with the noise. */
  function estimate(state, noise) {
    const scores = new Array(9).fill(0);
    let [sigma, zeros] = [0, 0];
    const weight = 1 / ((state.sides === "one" ? 1 : 2) * state.epsilon * state.samples);
    for (let sample = 0; sample < state.samples; sample++) {
      const gamma = noise.subarray(9 * sample, 9 * sample + 9);
      const [plain, ahead, behind = plain] = maximisers(state, gamma).map((found) => found.permutation);
      if (ahead === behind) zeros++;
      for (const [permutation, factor] of [[ahead, weight], [behind, -weight]]) {
        for (const entry of ONES[permutation]) {
          // Where both have a one, exactly nothing is left, not a rounding error.
          if (ONES[ahead].includes(entry) && ONES[behind].includes(entry)) continue;
          scores[entry] += factor;
          sigma += factor * gamma[entry];
        }
      }
    }
    return { scores, sigma, zeroShare: zeros / state.samples };
  }

  const norm = (vector) => Math.hypot(...vector);

  /** Everything the page shows, as plain numbers. */
  function compute(state, truth = exact(state.scores, state.cost, state.sigma)) {
    const noise = gumbel(torchKey(state.seed), 9 * state.samples);
    const losses = indices.map((index) => along(state.cost, index));
    const softmax = gibbs(state.scores, state.sigma);
    const estimated = estimate(state, noise);
    const product = estimated.scores.reduce((sum, value, entry) => sum + value * truth.scores[entry], 0);
    // A zero vector has no direction, and one below its own error none worth showing.
    const meaningful = norm(estimated.scores) > 0 && norm(truth.scores) > norm(truth.errors.scores);
    return {
      permutations: indices.map((index) => ({
        columns: PERMUTATIONS[index],
        score: along(state.scores, index),
        loss: losses[index],
        probability: truth.probabilities[index],
        gibbs: softmax[index],
      })),
      totalVariation: softmax.reduce((sum, p, index) => sum + Math.abs(p - truth.probabilities[index]), 0) / 2,
      expectedLoss: losses.reduce((sum, loss, index) => sum + loss * truth.probabilities[index], 0),
      maximisers: maximisers(state, noise).map((found) => ({ ...found, loss: losses[found.permutation] })),
      estimated,
      exact: truth,
      cosine: meaningful ? product / norm(estimated.scores) / norm(truth.scores) : null,
    };
  }

  /** The library's call with the same numbers. */
  function python({ scores, cost, sigma, epsilon, sides, samples, seed }) {
    const rows = (matrix) => [0, 3, 6].map((row) => `[${matrix.slice(row, row + 3).join(", ")}]`).join(", ");
    return `import torch
import directloss as dl

scores = torch.tensor([${rows(scores)}], dtype=torch.float64, requires_grad=True)
cost = torch.tensor([${rows(cost)}], dtype=torch.float64)
sigma = torch.tensor(${sigma}, dtype=torch.float64, requires_grad=True)
noise = dl.Gumbel().sample((${samples}, 3, 3), generator=torch.Generator().manual_seed(${seed}))

loss = dl.direct_loss(scores, cost, dl.Matching(), epsilon=${epsilon}, sides="${sides}", scale=sigma, noise=noise)
loss.backward()
print(scores.grad, sigma.grad)
`;
  }

  // ---- state ----

  const between = (low, high) => (value) => Number.isFinite(value) && value >= low && value <= high;
  const isEntry = between(-LARGEST_ENTRY, LARGEST_ENTRY);
  const isMatrix = (value) => Array.isArray(value) && value.length === 9 && value.every(isEntry);
  const VALID = {
    scores: isMatrix,
    cost: isMatrix,
    sigma: between(0, 3),
    epsilon: (value) => between(SMALLEST_EPSILON, LARGEST_EPSILON)(Math.abs(value)),
    sides: (value) => ["one", "both"].includes(value),
    samples: (value) => [1, 2, 5, 10, 100, 1000].includes(value),
    seed: (value) => Number.isInteger(value) && between(0, 2 ** 32 - 1)(value),
  };
  const state = {
    scores: PRESETS.wrong,
    cost: HAMMING,
    sigma: 1,
    epsilon: -2,
    sides: "one",
    samples: 100,
    seed: 5,
  };
  let render = () => {};

  function set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (!VALID[name]?.(value)) throw new RangeError(`${name} cannot be ${value}`);
    }
    Object.assign(state, changes);
    render();
  }

  let known = { of: "" };

  function results() {
    // The exact values take most of the time, and do not depend on the estimator.
    const of = JSON.stringify([state.scores, state.cost, state.sigma]);
    if (known.of !== of) known = { of, truth: exact(state.scores, state.cost, state.sigma) };
    return compute(state, known.truth);
  }

  // ---- the page ----

  // The slider has steps 0 to 100.
  const toMagnitude = (step) =>
    Number((SMALLEST_EPSILON * (LARGEST_EPSILON / SMALLEST_EPSILON) ** (step / 100)).toPrecision(2));
  const toStep = (magnitude) =>
    Math.round((100 * Math.log(magnitude / SMALLEST_EPSILON)) / Math.log(LARGEST_EPSILON / SMALLEST_EPSILON));

  function format(value, digits = 3) {
    const text = Math.abs(value).toFixed(digits);
    return value < 0 && Number(text) !== 0 ? `\u2212${text}` : text;
  }

  const entryNumber = (value) => format(value, Math.abs(value) < 10 ? 3 : 2);
  const lossNumber = (value) => format(value, Number.isInteger(value) ? 0 : 2);
  const title = (permutation) => PERMUTATIONS[permutation].map((column) => column + 1).join(" ");

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  /** Nine cells in a table; returns them. */
  function fillGrid(table, content = () => "") {
    const cells = entries.map((entry) => element("td", {}, content(entry)));
    table.append(...[0, 3, 6].map((row) => element("tr", {}, ...cells.slice(row, row + 3))));
    return cells;
  }

  function glyph(permutation) {
    const dots = entries.map((entry) => element("i", { className: ONES[permutation].includes(entry) ? "one" : "" }));
    return element("span", { className: "glyph", ariaHidden: "true" }, ...dots);
  }

  function mount(root) {
    const find = (name) => root.querySelector(`[data-part="${name}"]`);
    const control = (name) => root.elements[name];

    const inputs = Object.fromEntries(
      ["scores", "cost"].map((name) => {
        const input = (entry) => {
          const ariaLabel = `${name}, row ${Math.floor(entry / 3) + 1}, column ${(entry % 3) + 1}`;
          const range = { type: "number", step: 0.1, min: -LARGEST_ENTRY, max: LARGEST_ENTRY };
          const made = element("input", { ...range, name, ariaLabel });
          made.dataset.entry = entry;
          return made;
        };
        return [name, fillGrid(find(name), input).map((cell) => cell.firstChild)];
      }),
    );
    const rows = indices.map((index) => {
      const numbers = [element("td"), element("td"), element("td")];
      const bar = element("div", { className: "bar", ariaHidden: "true" }, element("i"), element("b"));
      const heading = element("th", { scope: "row" }, glyph(index), title(index));
      const [loss, ...probabilities] = numbers;
      find("distribution").append(element("tr", {}, heading, loss, element("td", {}, bar), ...probabilities));
      return { bar, numbers };
    });
    const boards = ["plain", "ahead", "behind"].map((name) => ({ table: find(name), cells: fillGrid(find(name)) }));
    const heat = Object.fromEntries(["estimated", "exact"].map((name) => [name, fillGrid(find(name))]));

    function showControls() {
      for (const name of ["scores", "cost"]) {
        inputs[name].forEach((input, entry) => show(input, state[name][entry]));
      }
      show(control("seed"), state.seed);
      control("sigma").value = state.sigma;
      control("epsilon").value = toStep(Math.abs(state.epsilon));
      control("epsilon").ariaValueText = format(Math.abs(state.epsilon), 2);
      control("sign").value = Math.sign(state.epsilon);
      control("sides").value = state.sides;
      control("samples").value = state.samples;
      find("sigma-value").textContent = format(state.sigma, 2);
      find("epsilon-value").textContent = format(state.epsilon, 2);
      find("python").textContent = python(state);
      for (const button of root.querySelectorAll("[data-preset]")) {
        button.ariaPressed = PRESETS[button.dataset.preset].join() === state.scores.join();
      }
    }

    function show(input, value) {
      if (input.matches(":focus[aria-invalid]")) return; // half typed
      input.ariaInvalid = null;
      if (input.valueAsNumber !== value) input.value = value;
    }

    function showDistribution({ permutations, totalVariation, expectedLoss, exact: { errors } }) {
      permutations.forEach(({ loss, probability, gibbs: weight }, index) => {
        const { bar, numbers } = rows[index];
        bar.style.setProperty("--probability", probability);
        bar.style.setProperty("--gibbs", weight);
        [lossNumber(loss), format(probability), format(weight)].forEach((text, k) => {
          numbers[k].textContent = text;
        });
      });
      const predicted = best(permutations.map(({ score }) => score));
      find("prediction").replaceChildren(glyph(predicted), title(predicted));
      find("prediction-loss").textContent = lossNumber(permutations[predicted].loss);
      find("total-variation").textContent = format(totalVariation);
      find("probability-error").textContent = format(Math.max(...errors.probabilities), 4);
      find("expected-loss").textContent = format(expectedLoss);
    }

    function showMaximisers({ maximisers: found }) {
      const [first, second] = state.sides === "one" ? [0, 1] : [1, 2]; // whose difference is the gradient
      boards.forEach(({ table, cells }, k) => {
        table.closest("figure").hidden = k >= found.length;
        if (k >= found.length) return;
        const { theta, permutation, loss } = found[k];
        table.ariaLabel = `Each row's column: ${title(permutation)}`;
        table.closest("figure").querySelector(".loss").textContent = lossNumber(loss);
        cells.forEach((cell, entry) => {
          const differs =
            (k === first || k === second) &&
            ONES[found[first].permutation].includes(entry) !== ONES[found[second].permutation].includes(entry);
          cell.textContent = format(theta[entry], 2);
          cell.classList.toggle("one", ONES[permutation].includes(entry));
          cell.classList.toggle("differs", differs);
        });
      });
    }

    function showGradients({ estimated, exact: truth, cosine }) {
      const largest = Math.max(...[...estimated.scores, ...truth.scores].map(Math.abs));
      for (const [name, { scores, sigma }] of [["estimated", estimated], ["exact", truth]]) {
        heat[name].forEach((cell, entry) => {
          cell.textContent = entryNumber(scores[entry]);
          cell.className = scores[entry] < 0 ? "negative" : "positive";
          cell.style.setProperty("--strength", `${largest && (100 * Math.abs(scores[entry])) / largest}%`);
        });
        find(`${name}-sigma`).textContent = entryNumber(sigma);
      }
      find("lowest").textContent = entryNumber(-largest);
      find("highest").textContent = entryNumber(largest);
      find("cosine").textContent = cosine === null ? "\u2013" : format(cosine);
      find("zero-share").textContent = `${format(100 * estimated.zeroShare, 1)} %`;
      find("scores-error").textContent = format(Math.max(...truth.errors.scores), 4);
      find("sigma-error").textContent = format(truth.errors.sigma, 4);
    }

    const changes = {
      scores: ({ dataset, valueAsNumber }) => ({ scores: state.scores.with(dataset.entry, valueAsNumber) }),
      cost: ({ dataset, valueAsNumber }) => ({ cost: state.cost.with(dataset.entry, valueAsNumber) }),
      sigma: ({ valueAsNumber }) => ({ sigma: valueAsNumber }),
      epsilon: ({ valueAsNumber }) => ({ epsilon: Math.sign(state.epsilon) * toMagnitude(valueAsNumber) }),
      sign: ({ value }) => ({ epsilon: value * Math.abs(state.epsilon) }),
      sides: ({ value }) => ({ sides: value }),
      samples: ({ value }) => ({ samples: Number(value) }),
      seed: ({ valueAsNumber }) => ({ seed: valueAsNumber }),
    };
    root.addEventListener("input", ({ target }) => {
      try {
        set(changes[target.name](target));
        target.ariaInvalid = null;
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        target.ariaInvalid = "true"; // the last valid number stays in force
      }
    });
    root.addEventListener("focusout", () => render()); // and returns when the field is left
    root.addEventListener("click", ({ target }) => {
      if (target.dataset.preset) set({ scores: PRESETS[target.dataset.preset] });
      if (target.name === "hamming") set({ cost: HAMMING });
      if (target.name === "draw") set({ seed: (state.seed + 1) % 2 ** 32 });
    });
    root.addEventListener("submit", (event) => event.preventDefault());

    let waiting = false;
    render = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        const shown = results();
        showControls();
        showDistribution(shown);
        showMaximisers(shown);
        showGradients(shown);
      });
    };
    render();
  }

  mount(document.getElementById("playground"));
  return { state, set, results, compute, gumbel, torchKey, python };
})();

// SPDX-License-Identifier: BSD-3-Clause
//
// Differences: which are more than chance, and their colours. The same as uniprof diff has it (output/difference.h).

const FALSE_RATE = 0.05, MIN_DRAWS = 10, FEW = 5;

// The complementary error function, to 1.2e-7 of its value (W. H. Press et al., Numerical Recipes, erfcc).
function erfc(x) {
	const t = 1 / (1 + 0.5 * x); // x is not negative here
	return t * Math.exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
		+ t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))));
}

// The logarithm of n!, by Stirling's series.
function logFactorial(n) {
	let x = n + 1, shift = 0;
	for (; x < 10; x++)
		shift -= Math.log(x);
	return shift + (x - 0.5) * Math.log(x) - x + 0.91893853320467 + 1 / (12 * x) - 1 / (360 * x ** 3) + 1 / (1260 * x ** 5);
}

const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);

// Fisher's exact test of whole counts: `a` of `before` draws, `b` of `after`.
function fisher(a, before, b, after) {
	const all = logChoose(before + after, a + b);
	const log = (k) => logChoose(before, k) + logChoose(after, a + b - k) - all;
	const seen = log(a) + 1e-7;
	let sum = 0;
	for (let k = Math.max(0, a + b - after); k <= Math.min(a + b, before); k++)
		if (log(k) <= seen)
			sum += Math.exp(log(k));
	return Math.min(1, sum);
}

// How likely chance alone makes two shares so different.
function chance(before, drawsBefore, after, drawsAfter) {
	const all = drawsBefore + drawsAfter, inside = before * drawsBefore + after * drawsAfter, outside = all - inside;
	if (Math.min(drawsBefore, drawsAfter) * Math.min(inside, outside) / all < FEW) {
		const [n, m] = [Math.round(drawsBefore), Math.round(drawsAfter)];
		return fisher(Math.round(before * n), n, Math.round(after * m), m);
	}
	const z = Math.abs(before - after) * Math.sqrt((all - 1) * drawsBefore * drawsAfter / (inside * outside));
	return erfc(z / Math.SQRT2);
}

// Of shares in both sides: 1 where the difference is significant, among all of them (Benjamini and Hochberg, 1995).
function markChanges(before, after, draws) {
	const marks = new Uint8Array(before.length), judged = [];
	if (!draws[0] || !draws[1])
		return marks;
	for (let i = 0; i < before.length; i++)
		if (before[i] * draws[0] + after[i] * draws[1] >= MIN_DRAWS)
			judged.push({i, p: chance(before[i], draws[0], after[i], draws[1])});
	judged.sort((a, b) => a.p - b.p);
	let last = judged.length - 1;
	while (last >= 0 && judged[last].p > FALSE_RATE * (last + 1) / judged.length)
		last--;
	for (; last >= 0; last--)
		marks[judged[last].i] = 1;
	return marks;
}

// As in the SVG (flamegraph_change.c).
function changeColor(before, after, marked) {
	const large = Math.max(before, after), strength = large ? Math.abs(after - before) / large : 0;
	const mix = (from, to) => Math.round(from + (to - from) * strength);
	if (!marked || !strength)
		return '#dcdce0';
	return after > before ? `rgb(255,${mix(205, 92)},${mix(195, 72)})` : `rgb(${mix(195, 84)},${mix(218, 152)},255)`;
}

const percent = (part, whole) => `${(whole ? 100 * part / whole : 0).toFixed(2)} %`;

function changeText(before, after, marked) {
	const points = 100 * (after - before), sign = points >= 0.005 ? '+' : points <= -0.005 ? '−' : '±';
	return `${percent(before, 1)} before, ${percent(after, 1)} after: ${sign}${Math.abs(points).toFixed(2)}${marked ? '' : ', may be chance'}`;
}

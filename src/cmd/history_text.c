/* SPDX-License-Identifier: BSD-3-Clause */

/* A history as text: a chart of letters, a letter for each row, and what they mean. */

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cmd/history.h"
#include "format/format.h"

#define HEIGHT	   12
#define AXIS_CELLS 7 /* "  1.50 " */
#define LABEL_GAP  3 /* columns between labels of the time axis, at least */

/* Signs of what is no row of its own. */
#define SIGN_OTHERS  'o'
#define SIGN_WAITING '~'
#define SIGN_LITTLE  '_'

#define TIME_ROOM 48
#define DAY_S	  86400

struct text_chart {
	const struct history *history;
	const struct tty_writer *writer;
	double top;	 /* vCPUs, of the chart's upper edge */
	uint32_t column; /* cells of a bucket */
};

static const char *put_time(int64_t at_s, const char *format, char text[TIME_ROOM])
{
	const time_t at = (time_t)at_s;
	struct tm tm;

	if (!localtime_r(&at, &tm) || !strftime(text, TIME_ROOM, format, &tm))
		*text = '\0';
	return text;
}

/* "3 h", "6 d 23 h", "90 s" */
static const char *put_length(int64_t s, char text[TIME_ROOM])
{
	static const struct {
		int64_t s;
		const char *name;
	} units[] = {{DAY_S, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
	int i = 0;

	while (i < 3 && s < units[i].s)
		i++;
	if (i < 3 && s % units[i].s / units[i + 1].s)
		snprintf(text, TIME_ROOM, "%" PRIi64 " %s %" PRIi64 " %s", s / units[i].s,
			 units[i].name, s % units[i].s / units[i + 1].s, units[i + 1].name);
	else
		snprintf(text, TIME_ROOM, "%" PRIi64 " %s", s / units[i].s, units[i].name);
	return text;
}

static int64_t bucket_s(const struct history *history, uint32_t bucket)
{
	const struct load_series *series = &history->series;

	return (int64_t)((series->from_unix_ns + bucket * series->bucket_ns) / NS_PER_S);
}

static uint32_t busiest(const struct history *history)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < history->series.n; i++)
		if (history_busy(history, i) > history_busy(history, best))
			best = i;
	return best;
}

/* The upper edge: a round number, just above the highest column. */
static double round_top(const struct history *history)
{
	static const double round[] = {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
	double most = 0.001, power;
	size_t i = 0;

	for (uint32_t b = 0; b < history->series.n; b++)
		most = fmax(most, history_busy(history, b) + history_waiting(history, b));
	power = pow(10, floor(log10(most)));
	while (i + 1 < sizeof(round) / sizeof(*round) && round[i] * power < most * 0.9999)
		i++;
	return round[i] * power;
}

static void put_head(const struct history *history, const struct tty_writer *writer)
{
	const struct profile *profile = history->loaded.profile;
	const uint64_t recorded_ns = history_recorded_ns(history);
	char from[TIME_ROOM], to[TIME_ROOM], length[TIME_ROOM];
	FREED char *line = format_guest_line(profile);
	const int64_t all_s = history->to_s - history->from_s;

	if (history->loaded.warning)
		tty_writer_warn(writer, history->loaded.warning);
	fputs("guest    ", writer->out);
	sanitize_print(line ?: "", writer->out);
	fprintf(writer->out, "\ntime     %s to %s\n",
		put_time(history->from_s, "%a %Y-%m-%d %H:%M:%S", from),
		put_time(history->to_s, "%a %Y-%m-%d %H:%M:%S %Z", to));
	fprintf(writer->out, "recorded %s of it",
		put_length((int64_t)(recorded_ns / NS_PER_S), length));
	fprintf(writer->out, ", %.1f %%\n",
		fmin(100, 100 * (double)recorded_ns / 1e9 / (double)all_s));
}

static void put_load(const struct history *history, const struct tty_writer *writer)
{
	const double recorded_ns = (double)history_recorded_ns(history);
	const double all_ns = (double)history->loaded.profile->selected.weight_ns;
	const double waiting_ns = (double)history_state_ns(history, VCPU_RUNNABLE);
	const uint32_t vcpus = profile_vcpus(history->loaded.profile), best = busiest(history);
	char at[TIME_ROOM], length[TIME_ROOM];

	fprintf(writer->out,
		"load     %.3f of %" PRIu32 " vCPU%s on average, most %.3f, in the %s from %s\n",
		recorded_ns > 0 ? all_ns / recorded_ns : 0, vcpus, vcpus == 1 ? "" : "s",
		history_busy(history, best),
		put_length((int64_t)(history->series.bucket_ns / NS_PER_S), length),
		put_time(bucket_s(history, best), "%a %d %H:%M:%S", at));
	if (history->waits && recorded_ns > 0 && waiting_ns > 0)
		fprintf(writer->out, "waiting  %.3f vCPUs on average wanted a CPU and had none\n",
			waiting_ns / recorded_ns);
}

static char sign_of(const struct history *history, uint32_t row)
{
	return row < history->n ? (char)('A' + row) : SIGN_OTHERS;
}

/* The sign of the band in which `level` lies, of a bucket; ' ': above all. */
static char sign_at(const struct history *history, uint32_t bucket, double level)
{
	double sum = 0;

	for (uint32_t row = 0; row < history->series.rows; row++) {
		sum += history_load(history, bucket, row);
		if (level < sum)
			return sign_of(history, row);
	}
	return level < sum + history_waiting(history, bucket) ? SIGN_WAITING : ' ';
}

static char cell(const struct text_chart *chart, uint32_t bucket, int row)
{
	const double height = chart->top / HEIGHT;
	const char sign = sign_at(chart->history, bucket, (row + 0.5) * height);

	return !row && sign == ' ' && history_busy(chart->history, bucket) > 0 ? SIGN_LITTLE : sign;
}

/* Letters stand on colours of their own, so that bands are seen from afar. */
static void put_sign(const struct tty_writer *writer, char sign, uint32_t times)
{
	const bool colored = writer->colors && sign != ' ' && sign != SIGN_LITTLE;
	const int color = sign >= 'A' && sign <= 'Z' ? (sign - 'A') % 12 : -1;

	if (colored && color >= 0)
		fprintf(writer->out, "\033[30;%dm", color < 6 ? 41 + color : 101 + color - 6);
	else if (colored)
		fputs(sign == SIGN_WAITING ? "\033[37;40m" : "\033[30;47m", writer->out);
	while (times--)
		fputc(sign, writer->out);
	if (colored)
		tty_writer_style(writer, STYLE_PLAIN);
}

static void put_chart_row(const struct text_chart *chart, int row)
{
	const uint32_t n = chart->history->series.n;

	if ((row + 1) % 3)
		fprintf(chart->writer->out, "%*s|", AXIS_CELLS, "");
	else
		fprintf(chart->writer->out, "%*.*f +", AXIS_CELLS - 1, chart->top < 0.5 ? 3 : 2,
			chart->top * (row + 1) / HEIGHT);
	for (uint32_t i = 0, times; i < n; i += times) {
		const char sign = cell(chart, i, row);

		for (times = 1; i + times < n && cell(chart, i + times, row) == sign; times++)
			;
		put_sign(chart->writer, sign, times * chart->column);
	}
	fputc('\n', chart->writer->out);
}

/* The axis is broken where nothing was recorded. */
static bool put_axis(const struct text_chart *chart)
{
	const struct load_series *series = &chart->history->series;
	bool gaps = false;

	fprintf(chart->writer->out, "%*s +", AXIS_CELLS - 1, "0");
	for (uint32_t i = 0; i < series->n; i++) {
		const bool gap = !series->buckets[i].recorded_ns;

		gaps |= gap;
		for (uint32_t k = 0; k < chart->column; k++)
			fputc(gap ? ' ' : '-', chart->writer->out);
	}
	fputc('\n', chart->writer->out);
	return gaps;
}

/* Seconds between labels: so many that each has room, as round as a clock's. */
static int64_t label_step(const struct text_chart *chart, size_t cells)
{
	static const int64_t steps[] = {1,   2,	  5,	10,   15,   30,	   60,	  120,	 300,
					600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S};
	const int64_t bucket = (int64_t)(chart->history->series.bucket_ns / NS_PER_S);
	const int64_t least = bucket * (int64_t)((cells + LABEL_GAP) / chart->column + 1);
	size_t i = 0;

	while (i < sizeof(steps) / sizeof(*steps) && (steps[i] < least || steps[i] % bucket))
		i++;
	return i < sizeof(steps) / sizeof(*steps) ? steps[i] : (least - 1) / DAY_S * DAY_S + DAY_S;
}

static void put_times(const struct text_chart *chart)
{
	const struct history *history = chart->history;
	const int64_t span_s = history->to_s - history->from_s;
	const char *format = span_s >= 4 * DAY_S ? "%a %d"
			     : span_s > DAY_S	 ? "%a %H:%M"
			     : span_s >= 600	 ? "%H:%M"
						 : "%H:%M:%S";
	const size_t width = (size_t)history->series.n * chart->column;
	char text[TIME_ROOM];
	size_t at = 0;
	const int64_t step_s = label_step(chart, strlen(put_time(history->from_s, format, text)));

	fprintf(chart->writer->out, "%*s", AXIS_CELLS + 1, "");
	for (uint32_t i = 0; i < history->series.n; i++) {
		const time_t begin = (time_t)bucket_s(history, i);
		const size_t column = (size_t)i * chart->column;
		struct tm tm = {0};

		localtime_r(&begin, &tm);
		if ((begin + tm.tm_gmtoff) %
		    (span_s >= 4 * DAY_S && step_s < DAY_S ? DAY_S : step_s))
			continue;
		put_time(begin, format, text);
		if ((at && column < at + 1) || column + strlen(text) > width)
			continue;
		at += (size_t)fprintf(chart->writer->out, "%*s%s", (int)(column - at), "", text);
	}
	fputc('\n', chart->writer->out);
}

static void put_row(const struct text_chart *chart, uint32_t row)
{
	const struct history *history = chart->history;
	const struct tty_writer *writer = chart->writer;
	const double recorded_ns = (double)history_recorded_ns(history);
	const double all_ns = (double)history->loaded.profile->selected.weight_ns;
	const double row_ns = (double)history_row_ns(history, row);
	double peak = 0;
	size_t len;

	for (uint32_t i = 0; i < history->series.n; i++)
		peak = fmax(peak, history_load(history, i, row));
	put_sign(writer, sign_of(history, row), 1);
	fprintf(writer->out, "%9.3f %7.3f %7.2f %%  ", recorded_ns > 0 ? row_ns / recorded_ns : 0,
		peak, all_ns > 0 ? 100 * row_ns / all_ns : 0);
	if (row < history->n) {
		const char *name = history_name(history, row, &len);

		tty_writer_put(writer, name, len, writer->width > 40 ? writer->width - 30 : 0);
	} else {
		fputs("all others", writer->out);
	}
	fputc('\n', writer->out);
}

static void put_rows(const struct text_chart *chart, bool gaps)
{
	const struct history *history = chart->history;
	FILE *out = chart->writer->out;
	bool waited = false;

	tty_writer_style(chart->writer, STYLE_HEAD);
	fprintf(out, "     vCPUs    most      self  %s", group_key_text(history->args->keys.at[0]));
	tty_writer_style(chart->writer, STYLE_PLAIN);
	fputc('\n', out);
	for (uint32_t row = 0; row < history->series.rows; row++)
		if (row < history->n || history_row_ns(history, row))
			put_row(chart, row);
	for (uint32_t i = 0; i < history->series.n; i++)
		waited |= history_waiting(history, i) > 0;
	if (waited)
		fprintf(out, "%c wanted a CPU and had none; above it: idle\n", SIGN_WAITING);
	if (gaps)
		fputs("No line below: nothing was recorded then.\n", out);
}

/* As a word of the shell's. */
static void put_word(const char *text, FILE *out)
{
	FREED char *clean = sanitize_new(text);

	if (clean && clean[strspn(clean, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789_-+=.,:/@%")]) {
		fputc('\'', out);
		for (const char *at = clean; *at; at++)
			fputs(*at == '\'' ? "'\\''" : (const char[]){*at, '\0'}, out);
		fputc('\'', out);
	} else {
		fputs(clean ?: "", out);
	}
}

/* The command that shows what the busiest column was about. */
static void put_hint(const struct history *history, FILE *out)
{
	const struct load_window *window = &history->args->load.window;
	const uint32_t best = busiest(history);
	char from[TIME_ROOM], to[TIME_ROOM];

	if (history_busy(history, best) <= 0)
		return;
	fprintf(out, "\nThe stacks of the busiest column:\n  uniprof flamegraph --from %s --to %s",
		put_time(bucket_s(history, best), "%Y-%m-%dT%H:%M:%S", from),
		put_time(bucket_s(history, best + 1), "%Y-%m-%dT%H:%M:%S", to));
	if (window->store) {
		fputs(" --store ", out);
		put_word(window->store, out);
	}
	fputs(" -o busiest.html ", out);
	put_word(history->args->load.path, out);
	fputc('\n', out);
}

void history_put_text(const struct history *history, const struct tty_writer *writer)
{
	const size_t width = writer->width > AXIS_CELLS + 1 ? writer->width - AXIS_CELLS - 1 : 72;
	struct text_chart chart = {.history = history,
				   .writer = writer,
				   .top = round_top(history),
				   .column = (uint32_t)(width / history->series.n) ?: 1};
	char length[TIME_ROOM];
	bool gaps;

	put_head(history, writer);
	put_load(history, writer);
	fprintf(writer->out, "\n vCPUs, a column is %s\n",
		put_length((int64_t)(history->series.bucket_ns / NS_PER_S), length));
	for (int row = HEIGHT - 1; row >= 0; row--)
		put_chart_row(&chart, row);
	gaps = put_axis(&chart);
	put_times(&chart);
	fputc('\n', writer->out);
	put_rows(&chart, gaps);
	put_hint(history, writer->out);
}

#include "bench/load_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace runnel {
namespace {

double rounded(double number, double unit) { return std::round(number / unit) * unit; }

// Milliseconds, rounded to the microsecond.
double in_milliseconds(double seconds) { return std::round(seconds * 1e6) / 1e3; }

OrderedJson durations_json(const DurationHistogram& durations) {
  return {{"count", durations.count()},
          {"p50", in_milliseconds(durations.quantile(0.5))},
          {"p90", in_milliseconds(durations.quantile(0.9))},
          {"p99", in_milliseconds(durations.quantile(0.99))},
          {"max", in_milliseconds(durations.max())}};
}

// A duration in as many digits as a reader needs: "0.42", "7.3", "184".
std::string ms_text(const DurationHistogram& durations, double q) {
  if (durations.count() == 0) return "-";
  const double ms = durations.quantile(q) * 1e3;
  return fixed(ms, ms < 1 ? 2 : ms < 100 ? 1 : 0);
}

std::string load_text(const LoadFigures& run) {
  if (run.rate == 0) return with_commas(run.concurrency) + " at once";
  if (run.multiple > 0) return fixed(run.multiple, 2) + "x";
  return "given";
}

using TableRow = std::vector<std::string>;

TableRow row_of(const LoadFigures& run) {
  DurationHistogram none;
  const Refusals* most = nullptr;
  for (const auto& [code, refusals] : run.refused) {
    if (most == nullptr || refusals.count > most->count) most = &refusals;
  }
  const DurationHistogram& refusal = most == nullptr ? none : most->latency;
  return {load_text(run),
          run.rate == 0 ? "-" : fixed(run.rate, 1),
          with_commas(run.completed),
          with_commas(run.refusals()),
          with_commas(run.failures() + run.unfinished + run.dropped),
          with_commas(std::llround(run.goodput())),
          ms_text(run.first_value, 0.5),
          ms_text(run.first_value, 0.99),
          ms_text(run.gap, 0.5),
          ms_text(run.gap, 0.99),
          ms_text(run.gap, 1),
          ms_text(refusal, 0.5),
          ms_text(refusal, 0.99)};
}

std::string lines_of(const std::vector<TableRow>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const TableRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += std::string(widths[i] - row[i].size() + (i > 0 ? 2 : 0), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

bool same_load(const LoadFigures& a, const LoadFigures& b) {
  return a.rate == b.rate && a.concurrency == b.concurrency && a.multiple == b.multiple;
}

}  // namespace

int64_t LoadFigures::refusals() const {
  return std::accumulate(refused.begin(), refused.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second.count; });
}

int64_t LoadFigures::failures() const {
  return std::accumulate(failed.begin(), failed.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second; });
}

double LoadFigures::refusal_p99() const {
  double longest = 0;
  for (const auto& [code, refusals] : refused) {
    longest = std::max(longest, refusals.latency.quantile(0.99));
  }
  return longest;
}

OrderedJson figures_json(const LoadFigures& figures) {
  OrderedJson refused = OrderedJson::object();
  for (const auto& [code, refusals] : figures.refused) {
    refused[code] = {{"count", refusals.count}, {"latency_ms", durations_json(refusals.latency)}};
  }
  OrderedJson out = {{"seconds", rounded(figures.seconds, 1e-3)}};
  if (figures.multiple > 0) out["multiple"] = figures.multiple;
  if (figures.rate > 0) out["rate"] = rounded(figures.rate, 1e-3);
  if (figures.rate == 0) out["concurrency"] = figures.concurrency;
  const OrderedJson counts = {{"due", figures.due},
                              {"completed", figures.completed},
                              {"cancelled", figures.cancelled},
                              {"stalled", figures.stalled},
                              {"unfinished", figures.unfinished},
                              {"dropped", figures.dropped},
                              {"waited", figures.waited},
                              {"refused", std::move(refused)},
                              {"failed", figures.failed},
                              {"values", figures.values},
                              {"messages", figures.messages},
                              {"good_values", figures.good_values},
                              {"goodput", rounded(figures.goodput(), 0.1)},
                              {"first_value_ms", durations_json(figures.first_value)},
                              {"gap_ms", durations_json(figures.gap)},
                              {"call_ms", durations_json(figures.call)},
                              {"late_ms", durations_json(figures.late)}};
  out.update(counts);
  return out;
}

std::string figures_table(const std::vector<LoadFigures>& runs) {
  std::vector<TableRow> rows = {
      {"load", "calls/s", "completed", "refused", "other", "goodput", "first p50", "first p99",
       "gap p50", "gap p99", "gap max", "refusal p50", "refusal p99"},
      {"", "", "", "", "", "values/s", "ms", "ms", "ms", "ms", "ms", "ms", "ms"}};
  std::vector<const LoadFigures*> shown;
  for (const LoadFigures& run : runs) {
    const bool is_known = std::any_of(shown.begin(), shown.end(),
                                      [&](const auto* other) { return same_load(*other, run); });
    if (is_known) continue;
    shown.push_back(&run);
    std::vector<const LoadFigures*> alike;
    for (const LoadFigures& other : runs) {
      if (same_load(run, other)) alike.push_back(&other);
    }
    const auto middle = alike.begin() + static_cast<std::ptrdiff_t>(alike.size() / 2);
    std::nth_element(alike.begin(), middle, alike.end(),
                     [](const auto* a, const auto* b) { return a->goodput() < b->goodput(); });
    rows.push_back(row_of(**middle));
  }
  return lines_of(rows);
}

}  // namespace runnel

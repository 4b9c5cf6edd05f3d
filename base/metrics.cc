#include "base/metrics.h"

#include <algorithm>
#include <charconv>

namespace runnel {
namespace {

// The shortest decimal fraction that reads as the same number.
std::string number_text(double number) {
  std::array<char, 400> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

std::string in_units(int64_t size, const Buckets& buckets) {
  return number_text(static_cast<double>(size) / static_cast<double>(buckets.per_unit));
}

// Label values are in quotes, help texts are not.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out;
}

}  // namespace

void Histogram::observe(int64_t size, int64_t times) {
  const auto bucket = std::ranges::lower_bound(buckets_.bounds, size);
  counts_[bucket - buckets_.bounds.begin()].add(times);
  sum_.add(size * times);
}

void Histogram::add(const Histogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i].add(other.count(i));
  sum_.add(other.sum());
}

int64_t Histogram::count() const {
  int64_t all = 0;
  for (const Counter& count : counts_) all += count.value();
  return all;
}

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + " " + escaped(help, false) + "\n";
  text_ += "# TYPE " + name_ + " " + std::string(type) + "\n";
}

void MetricsText::sample(Labels labels, int64_t value) {
  line("", labels, "", std::to_string(value));
}

void MetricsText::sample(Labels labels, double value) { line("", labels, "", number_text(value)); }

// The format has cumulative buckets. The count is that of the last bucket, even if observations
// arrive while this runs.
void MetricsText::sample(Labels labels, const Histogram& histogram) {
  const Buckets& buckets = histogram.buckets();
  int64_t count = 0;
  for (size_t i = 0; i <= Buckets::kCount; ++i) {
    count += histogram.count(i);
    const std::string bound = i == Buckets::kCount ? "+Inf" : in_units(buckets.bounds[i], buckets);
    line("_bucket", labels, bound, std::to_string(count));
  }
  line("_sum", labels, "", in_units(histogram.sum(), buckets));
  line("_count", labels, "", std::to_string(count));
}

void MetricsText::line(std::string_view suffix, Labels labels, std::string_view bound,
                       std::string_view value) {
  text_ += name_;
  text_ += suffix;
  std::string inside;
  const auto put = [&](std::string_view name, std::string_view text) {
    inside += (inside.empty() ? "" : ",") + std::string(name) + "=\"" + escaped(text, true) + "\"";
  };
  for (const auto& [name, text] : labels) put(name, text);
  if (!bound.empty()) put("le", bound);
  if (!inside.empty()) text_ += "{" + inside + "}";
  text_ += " " + std::string(value) + "\n";
}

}  // namespace runnel

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/field_flags.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/reach_model.h"
#include "cli/score_input.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {
namespace {

using Sequences = std::vector<Sequence>;

// The size in values, or in bytes if it is text.
size_t size_of(const Sequence& sequence) {
  return sequence.text.empty() ? sequence.values.size() : sequence.text.size();
}

// Runs several calls at once, with each worker taking the next sequence. The first failure ends all
// of them.
class Scoring {
 public:
  Scoring(Client& client, std::string model, const Sequences& sequences)
      : client_(client),
        model_(std::move(model)),
        sequences_(sequences),
        totals_(sequences.size()) {}

  void run(int jobs, ProgressLine& progress) {
    std::vector<std::thread> workers;
    const int count = static_cast<int>(std::min<size_t>(jobs, sequences_.size()));
    workers.reserve(count);
    for (int i = 0; i < count; ++i) workers.emplace_back([this] { work(); });
    const bool one = sequences_.size() == 1;
    const auto total = static_cast<int64_t>(one ? size_of(sequences_[0]) : sequences_.size());
    std::unique_lock lock(mutex_);
    while (ended_ < count) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      progress.update(one ? scored_.load() : done_, total);
    }
    lock.unlock();
    for (std::thread& worker : workers) worker.join();
    progress.clear();
  }

  // OK, or the first failure; failed() says which sequence failed.
  const Status& status() const { return status_; }
  size_t failed() const { return failed_; }
  const std::vector<v1::ScoreTotal>& totals() const { return totals_; }

 private:
  void work() {
    while (true) {
      const size_t index = next_.fetch_add(1);
      if (index >= sequences_.size()) break;
      Scored scored;
      const Status status = client_.score(model_, sequences_[index], scored,
                                          [&](int64_t scored_now) { scored_ = scored_now; });
      const std::lock_guard lock(mutex_);
      if (!status.ok()) {
        if (status_.ok()) {
          status_ = status;
          failed_ = index;
        }
        next_ = sequences_.size();
        break;
      }
      totals_[index] = scored.total;
      ++done_;
      changed_.notify_one();
    }
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_one();
  }

  Client& client_;
  const std::string model_;
  const Sequences& sequences_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;  // workers that have ended
  int64_t done_ = 0;
  std::atomic<int64_t> scored_{0};  // values, or bytes of text; used if there is only one sequence
  Status status_;
  size_t failed_ = 0;
  std::vector<v1::ScoreTotal> totals_;
};

struct Mean {
  double mean = 0;
  double error = 0;  // standard error of the mean; 0 for a single item
};

Mean mean_of(const std::vector<v1::ScoreTotal>& totals) {
  const auto count = static_cast<double>(totals.size());
  Mean result;
  for (const v1::ScoreTotal& total : totals) result.mean += total.bits_per_dim() / count;
  double squares = 0;
  for (const v1::ScoreTotal& total : totals) {
    squares += std::pow(total.bits_per_dim() - result.mean, 2);
  }
  if (count > 1) result.error = std::sqrt(squares / (count - 1) / count);
  return result;
}

void print_json(const ModelView& model, const std::vector<v1::ScoreTotal>& totals, double seconds,
                Console& console) {
  const Mean mean = mean_of(totals);
  OrderedJson items = OrderedJson::array();
  for (const v1::ScoreTotal& total : totals) {
    items.push_back({{"bits_per_dim", total.bits_per_dim()},
                     {"log_prob", total.log_prob()},
                     {"values", total.values()}});
  }
  const OrderedJson out = {{"model", model.name},          {"numerics", totals.front().numerics()},
                           {"items", std::move(items)},    {"mean_bits_per_dim", mean.mean},
                           {"standard_error", mean.error}, {"seconds", seconds}};
  console.out << json_text(out) << std::endl;
}

void print_text(const ModelView& model, const std::vector<v1::ScoreTotal>& totals, double seconds,
                Console& console) {
  const Mean mean = mean_of(totals);
  for (size_t i = 0; i < totals.size(); ++i) {
    console.out << i << "  " << fixed(totals[i].bits_per_dim(), 4) << '\n';
  }
  console.out << "mean  " << fixed(mean.mean, 4);
  if (totals.size() > 1) console.out << " +- " << fixed(mean.error, 4) << " (standard error)";
  console.out << (model.image ? " bits per dimension, " : " bits per value, ")
              << with_commas(static_cast<int64_t>(totals.size()))
              << (totals.size() == 1 ? " item" : " items") << " in " << fixed(seconds, 2) << " s ("
              << tame(totals.front().numerics()) << ")" << std::endl;
}

Result<Sequences> load(const ScoreOptions& options, const ModelView& model) {
  Sequences sequences;
  if (options.text) {
    Result<std::string> text = load_score_text(options.file, model);
    if (!text.ok()) return text.status();
    Sequence& one = sequences.emplace_back();
    one.text = std::move(*text);
    if (options.no_begin) one.begin = false;
    return sequences;
  }
  auto values = load_sequences(options.file, model, options.first.value_or(INT64_MAX));
  if (!values.ok()) return values.status();
  for (auto& one : *values) sequences.emplace_back().values = std::move(one);
  return sequences;
}

}  // namespace

int run_score(const ScoreOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  Interrupt interrupt([&] { client.cancel(); });
  auto reached = reach_model(client, options.model, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  const auto& model = std::get<ModelView>(reached);
  interrupt.end_at_once(true);
  const Result<Sequences> sequences = load(options, model);
  interrupt.end_at_once(false);
  if (!sequences.ok()) return fail(console, kExitUsage, sequences.status().message());

  Scoring scoring(client, model.name, *sequences);
  const bool one = sequences->size() == 1;
  ProgressLine progress = progress_line(console, !one           ? "items"
                                                 : options.text ? "bytes"
                                                                : "values");
  scoring.run(options.jobs, progress);
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!scoring.status().ok()) {
    return fail(console, kExitFailed,
                "item " + std::to_string(scoring.failed()) + ": " +
                    call_error(in_flags(scoring.status(), score_flag)));
  }
  if (options.json) {
    print_json(model, scoring.totals(), progress.seconds(), console);
  } else {
    print_text(model, scoring.totals(), progress.seconds(), console);
  }
  return kExitOk;
}

}  // namespace runnel

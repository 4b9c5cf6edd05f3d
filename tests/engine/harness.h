// An engine over a fake model on a virtual clock, run turn by turn, and a reader of its streams.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/text/tokenizer.h"
#include "tests/engine/fake_model.h"

namespace runnel {

inline constexpr Duration kMs = std::chrono::milliseconds(1);
inline constexpr Duration kSecond = std::chrono::seconds(1);

// The values of `left`, then those of `right`.
inline std::vector<int32_t> joined(std::vector<int32_t> left, const std::vector<int32_t>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Reads one stream when a test calls read().
struct Reader {
  std::shared_ptr<TokenStream> stream;
  std::vector<Queued> queued;
  std::optional<Started> started;
  std::map<int, std::vector<int32_t>> values;  // by sample
  std::map<int, std::vector<int64_t>> positions;
  std::map<int, std::vector<float>> log_probs;
  std::vector<size_t> groups;  // the number of values in each group taken that had any
  std::vector<Finished> finished;
  std::optional<Status> end;

  // Takes everything that the stream can deliver now.
  void read();
};

class Harness {
 public:
  explicit Harness(Spec spec = fake_spec(), ModelLimits limits = default_limits(),
                   EngineOptions options = {});

  // Uses a model that the caller made.
  explicit Harness(std::unique_ptr<Model> owned, const EngineOptions& options = {});

  static ModelLimits default_limits() { return {.slots = 8, .rows = 8, .values = 16, .steps = 1}; }

  // Starts a call. If the engine refuses it, the status is the reader's end.
  std::shared_ptr<Reader> generate(const GenerateRequest& request, int room = 0);
  // Runs turns until nothing changes, and reads all streams after each. At most `turns` turns.
  void run(int turns = 10000);
  // Runs one turn, then reads all streams.
  void turn();

  // Each runs turns until the unary call is answered.
  Result<SessionInfo> create(const std::string& id);
  Result<SessionInfo> get(const std::string& id);
  Status remove(const std::string& id);
  // Return the children or the imported session.
  Result<std::vector<SessionInfo>> fork(const std::string& parent,
                                        const std::vector<std::string>& children);
  Result<StateImage> export_state(const std::string& id);
  Result<std::vector<SessionInfo>> import_state(const std::string& id, const StateImage& image);

  Result<SessionInfo> rewind(const std::string& id, int64_t position);

  Clock clock{TimePoint(std::chrono::seconds(1000))};
  FakeModel* model = nullptr;  // null if the caller made the model
  std::unique_ptr<Engine> engine;
  std::vector<std::shared_ptr<Reader>> readers;
};

// Writes value N of 0 to 99 as "<N>".
std::shared_ptr<const Tokenizer> number_tokenizer();

// A request for `max_values` values after `prompt`, with a seed.
GenerateRequest request_of(std::vector<int32_t> prompt, int64_t max_values, uint64_t seed = 1);

}  // namespace runnel

#include "server/host/stored_states.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "config/server_config.h"
#include "models/state/file.h"

namespace runnel {
namespace {

constexpr auto kMost = std::chrono::minutes(1);
// The maximum number of bytes of a file in addition to its state.
constexpr int64_t kBesideState = int64_t{2} << 20;
constexpr size_t kMostStates = 4096;

// The names NAME of the files NAME.state, in ascending order.
Result<std::vector<std::string>> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  auto entry = std::filesystem::directory_iterator(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != ".state") continue;
    names.push_back(path.stem().string());
    if (is_plain_name(names.back())) continue;
    return invalid_argument(printable(path.string(), 400) +
                            ": the name of a stored state must be " + plain_name_text());
  }
  if (error) return not_found(printable(directory, 400) + ": " + error.message());
  if (names.size() > kMostStates) {
    return invalid_argument(printable(directory, 400) + ": has " + std::to_string(names.size()) +
                            " states; expected at most " + std::to_string(kMostStates));
  }
  std::ranges::sort(names);
  return names;
}

struct ReadState {
  StateHeader header;
  StateImage image;
};

// Reads a state of the engine's model; none if the file is of another model.
Result<std::optional<ReadState>> read_state(const std::string& path, const std::string& digest,
                                            const Engine& engine) {
  bool other = false;
  StateReader reader(
      [&](const StateHeader& header) -> Result<StateLayout> {
        other = header.model != digest;
        const Status status = check_state(header, {.spec = engine.spec(),
                                                   .layout = engine.layout(),
                                                   .model = digest,
                                                   .any_numerics = true,
                                                   .any_seal = true});
        return status.ok() ? Result<StateLayout>(engine.layout()) : Result<StateLayout>(status);
      },
      nullptr);
  const Result<std::string> bytes = read_head(path, engine.state_bytes() + kBesideState);
  if (!bytes.ok()) return bytes.status();
  Status status = reader.add(std::as_bytes(std::span(*bytes)));
  if (other) return std::optional<ReadState>();
  if (!status.ok()) return invalid_argument(path + ": " + status.message());
  Result<StateImage> image = reader.finish();
  if (!image.ok()) return invalid_argument(path + ": " + image.status().message());
  return std::optional(ReadState{*reader.header(), std::move(*image)});
}

Status add_state(const std::string& name, StateImage image, Engine& engine) {
  const auto added = std::make_shared<std::promise<Status>>();
  auto outcome = added->get_future();
  engine.add_state(name, std::make_shared<StateImage>(std::move(image)),
                   [added](const auto& made) { added->set_value(made.status()); });
  if (outcome.wait_for(kMost) == std::future_status::ready) return outcome.get();
  return {Code::kDeadlineExceeded, "the model did not take the state within a minute"};
}

}  // namespace

Result<std::vector<StoredState>> load_states(const std::string& directory,
                                             const std::string& digest, Engine& engine) {
  const auto names = names_in(directory);
  if (!names.ok()) return names.status();
  std::vector<StoredState> states;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name + ".state";
    auto read = read_state(path, digest, engine);
    if (!read.ok()) return read.status();
    if (!*read) continue;
    StateHeader& header = (*read)->header;
    if (Status s = add_state(name, std::move((*read)->image), engine); !s.ok()) {
      return Status(s.code(), path + ": " + s.message());
    }
    states.push_back({name, header.position, std::move(header.numerics)});
  }
  return states;
}

}  // namespace runnel

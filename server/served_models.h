// The models that this server serves, by name. They come and go while calls run: whoever finds a
// model keeps it alive, and a model whose last keeper has let go ends on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "engine/caller.h"
#include "engine/engine.h"
#include "models/text/tokenizer.h"
#include "server/task_thread.h"

namespace runnel {

class Backend;

// One model and all that runs it. Destroyed from the bottom up: the engine, and with it the model,
// before the backend.
struct ServedModel {
  std::string name;
  std::string weight_digest;                   // SHA-256 of the weights; empty where there are none
  std::shared_ptr<const Tokenizer> tokenizer;  // null where values are not text
  std::shared_ptr<Backend> backend;            // null where the model has none (a fake)
  std::unique_ptr<Engine> engine;
  // Found out when it is served.
  std::string spec_json;
  int64_t described_bytes = 0;  // of what a client is told of it, as a message and encoded, at most
};

// Any thread may call any function; none waits for a call, a step or another model.
class ServedModels {
 public:
  using ByName = std::map<std::string, std::shared_ptr<const ServedModel>>;

  ServedModels() = default;
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;
  // Retires every model and waits until all have ended. No call may run any more: one that still
  // keeps a model after a minute stops the process.
  ~ServedModels();

  // ALREADY_EXISTS when there is one of that name.
  Status add(ServedModel model);
  // Takes a model in the place of the one of its name: new calls get it, those that run on the old
  // one go on. NOT_FOUND when there is none of that name.
  Status replace(ServedModel model);
  // Takes a model away: new calls do not find it, those that run on it go on to their end. Its
  // sessions end with the last of them. NOT_FOUND when there is none of that name.
  Status retire(const std::string& name);

  // From here calls find models.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // The model of that name; the only one where `name` is empty. UNAVAILABLE before open(),
  // INVALID_ARGUMENT when a name is needed, NOT_FOUND that lists the names. A model that the caller
  // may not use is as if it were not there.
  Result<std::shared_ptr<const ServedModel>> find(const Caller& caller,
                                                  const std::string& name) const;

  // UNAVAILABLE before open().
  Status ready() const;

  // Those of now; they do not change.
  std::shared_ptr<const ByName> all() const { return models_.load(); }
  // Those that the caller may use.
  ByName all_for(const Caller& caller) const;

 private:
  struct Living;

  std::shared_ptr<const ServedModel> keep(ServedModel model);

  std::mutex changing_;  // one change of models_ at a time
  std::atomic<std::shared_ptr<const ByName>> models_{std::make_shared<const ByName>()};
  std::atomic<bool> open_{false};

  std::mutex living_mutex_;
  std::condition_variable ended_;
  int living_ = 0;     // models that have not ended
  TaskThread reaper_;  // ends models, because that waits for a step
};

}  // namespace runnel

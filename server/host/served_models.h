// The models that this server serves, by name. They come and go while calls run: whoever finds a
// model keeps it alive, and a model whose last keeper has let go ends on a thread of its own.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/file_stamp.h"
#include "base/status.h"
#include "engine/caller.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "models/template/chat_format.h"
#include "models/text/tokenizer.h"
#include "server/host/call_metrics.h"
#include "server/host/stored_states.h"
#include "server/host/task_thread.h"

namespace runnel {

class Backend;

// One model and all that runs it. Destroyed from the bottom up: the engine, and with it the model,
// before the backend.
struct ServedModel {
  std::string name;
  std::string weight_digest;                   // SHA-256 of the weights; empty where there are none
  std::shared_ptr<const Tokenizer> tokenizer;  // null where values are not text
  std::shared_ptr<const ChatFormat> chat;      // null where conversations are not served,
  std::string no_chat;                         // for this reason
  std::shared_ptr<Backend> backend;            // null where the model has none (a fake)
  std::string instructions;                    // of the CPU, and why those; empty on a GPU
  std::unique_ptr<Engine> engine;
  std::vector<StoredState> states;  // that sequences may start from, by name
  // What it was loaded from; empty where that is no directory.
  std::string path;
  FileStamps files;          // files_of() its configuration, just before
  int64_t loaded_bytes = 0;  // that the process grew by meanwhile
  // Found out when it is served.
  std::unique_ptr<CallMetrics> calls;
  std::string spec_json;
  std::string state_digest;     // model_digest(): whose states it takes
  int64_t described_bytes = 0;  // of what a client is told of it, as a message and encoded, at most
};

// The name by which a caller knows a model: the one that they asked for, or its own where they
// named none.
inline const std::string& name_for(const std::string& asked, const ServedModel& model) {
  return asked.empty() ? model.name : asked;
}

// The counters of all models of one name, and the sessions that its current models hold.
struct ModelFigures {
  CallMetrics calls;
  EngineMetrics engine;
  int64_t slots = 0;
  int64_t slots_free = 0;
  int64_t waiting = 0;
  int64_t slots_stored = 0;
  std::array<int64_t, kSlotStates> slots_by_state{};  // of sessions
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
  // Replaces the model of the same name: new calls get the new one, running calls continue on the
  // old one. NOT_FOUND when there is none of that name.
  Status replace(ServedModel model);
  // Takes a model away: new calls do not find it, those that run on it go on to their end. Its
  // sessions end with the last of them. NOT_FOUND when there is none of that name.
  Status retire(const std::string& name);

  // Lets models be found by other names as well: the model's name by alias, in place of all aliases
  // of before. One that is a model's own name counts for nothing while that model is there.
  void set_aliases(std::map<std::string, std::string> aliases);
  // Of one model, in order.
  std::vector<std::string> aliases_of(const std::string& name) const;

  // From here on engines refuse new calls, those of models that are yet to come as well.
  void drain();

  // From here calls find models.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // The model of that name or alias; the only one where `name` is empty. UNAVAILABLE before open(),
  // INVALID_ARGUMENT when a name is needed, NOT_FOUND that lists the names. A model that the caller
  // may use by none of its names is as if it were not there.
  Result<std::shared_ptr<const ServedModel>> find(const Caller& caller,
                                                  const std::string& name) const;

  // UNAVAILABLE before open().
  Status ready() const;

  // Those of now; they do not change.
  std::shared_ptr<const ByName> all() const;
  // The figures of every model that is served or has been, by name. What was counted stays when a
  // model goes; beyond kPastNames names that are not served any more it is under kOtherModels.
  std::map<std::string, ModelFigures> figures() const;
  static constexpr size_t kPastNames = 128;
  static constexpr const char* kOtherModels = "(other)";  // no model can be named so

  // Whether the caller may use the model of that name, by any of its names.
  bool may_use(const Caller& caller, const std::string& name) const;
  // Those that the caller may use.
  ByName all_for(const Caller& caller) const;

 private:
  struct Living;
  // All that can be found at one time.
  struct Names {
    ByName models;
    std::map<std::string, std::string> aliases;  // to names; that of no model counts for nothing

    std::shared_ptr<const ServedModel> called(const std::string& name) const;  // null: none
    ByName usable_by(const Caller& caller) const;
  };

  std::shared_ptr<const ServedModel> keep(ServedModel model);
  void keep_counts(const ServedModel& model);
  void publish(Names names) { names_.store(std::make_shared<const Names>(std::move(names))); }

  std::mutex changing_;  // one change of names_ at a time
  bool draining_ = false;
  std::atomic<std::shared_ptr<const Names>> names_{std::make_shared<const Names>()};
  std::atomic<bool> open_{false};

  mutable std::mutex living_mutex_;
  std::condition_variable ended_;
  int living_ = 0;                            // models that have not ended
  std::set<const ServedModel*> counting_;     // of them, those that may still count
  std::map<std::string, ModelFigures> past_;  // what others have counted, by name
  TaskThread reaper_;                         // ends models, because that waits for a step
};

}  // namespace runnel

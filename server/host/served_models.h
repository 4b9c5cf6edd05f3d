// The models that this server serves, by name. Models may be added and retired while calls run. A
// call holds a reference to its model. When the last reference is gone, the model is destroyed on
// another thread.
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

// One model and everything that runs it. The members are destroyed from the last to the first: the
// engine, which has the model, before the backend.
struct ServedModel {
  std::string name;
  std::string weight_digest;                   // SHA-256 of the weights; empty: it has none
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the values are not text
  std::shared_ptr<const ChatFormat> chat;      // null: the model does not serve conversations
  std::string no_chat;                         // why `chat` is null
  std::shared_ptr<Backend> backend;            // null: the model has none (a fake)
  std::string instructions;  // of the CPU, and why they were chosen; empty on a GPU
  std::unique_ptr<Engine> engine;
  std::vector<StoredState> states;  // states that sequences may start from, by name
  // The directory that it was loaded from; empty: not from a directory.
  std::string path;
  FileStamps files;          // files_of() its configuration, just before it was loaded
  int64_t loaded_bytes = 0;  // how much the process grew while it was loaded
  // Set when it is added.
  std::unique_ptr<CallMetrics> calls;
  std::string spec_json;
  std::string state_digest;     // model_digest(): it accepts states with this digest
  int64_t described_bytes = 0;  // the most bytes of its description, as a message and encoded
};

// The name by which a caller knows a model: the name that the caller asked for, or else its own.
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
  std::array<int64_t, kSlotStates> slots_by_state{};  // slots that sessions hold
};

// Any thread may call any function. No function waits for a call, a step or another model.
class ServedModels {
 public:
  using ByName = std::map<std::string, std::shared_ptr<const ServedModel>>;

  ServedModels() = default;
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;
  // Retires every model, and waits until all have been destroyed. No call may run any more. If a
  // call still holds a model after an hour, the process stops.
  ~ServedModels();

  // Adds a model. ALREADY_EXISTS if there is a model of this name.
  Status add(ServedModel model);
  // Replaces the model of the same name. New calls get the new model, and running calls continue on
  // the old one. NOT_FOUND if there is no model of this name.
  Status replace(ServedModel model);
  // Removes a model. New calls do not find it, and running calls continue. Its sessions end with
  // the last of these calls. NOT_FOUND if there is no model of this name.
  Status retire(const std::string& name);

  // Replaces all aliases, by which models can be found in addition to their names. The map has the
  // model's name for each alias. An alias has no effect while it is also the name of a model.
  void set_aliases(std::map<std::string, std::string> aliases);
  // The aliases of one model, in order.
  std::vector<std::string> aliases_of(const std::string& name) const;

  // Makes all engines refuse new calls, also the engines of models that are added later.
  void drain();

  // Lets calls find models.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // The model of this name or alias. If `name` is empty, the only model. UNAVAILABLE before open(),
  // INVALID_ARGUMENT if a name is needed, NOT_FOUND, which lists the names. Models that the caller
  // may not use by any name are ignored.
  Result<std::shared_ptr<const ServedModel>> find(const Caller& caller,
                                                  const std::string& name) const;

  // UNAVAILABLE before open().
  Status ready() const;

  // The present models. The map does not change later.
  std::shared_ptr<const ByName> all() const;
  // The figures of every model that is or was served, by name. Counts stay when a model is removed.
  // At most kPastNames names that are no longer served have their own counts. The counts of the
  // others are under kOtherModels.
  std::map<std::string, ModelFigures> figures() const;
  static constexpr size_t kPastNames = 128;
  static constexpr const char* kOtherModels = "(other)";  // no model can have this name

  // Whether the caller may use the model of this name, by its name or by an alias.
  bool may_use(const Caller& caller, const std::string& name) const;
  // The models that the caller may use.
  ByName all_for(const Caller& caller) const;

 private:
  struct Living;
  // The models and aliases that can be found at one time.
  struct Names {
    ByName models;
    std::map<std::string, std::string> aliases;  // to names of models, which need not exist

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
  std::set<const ServedModel*> counting_;     // living models whose counts are not in past_
  std::map<std::string, ModelFigures> past_;  // the counts of other models, by name
  TaskThread reaper_;                         // destroys models, which waits for a step
};

}  // namespace runnel

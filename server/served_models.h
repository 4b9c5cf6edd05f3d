// The models that this server serves, by name, and whether it serves yet.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/caller.h"
#include "engine/engine.h"
#include "models/text/tokenizer.h"

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
};

class ServedModels {
 public:
  using ByName = std::map<std::string, std::shared_ptr<const ServedModel>>;

  // Before open(). ALREADY_EXISTS when there is one of that name.
  Status add(ServedModel model);
  // From here calls find what was added.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // The model of that name; the only one where `name` is empty. UNAVAILABLE before open(),
  // INVALID_ARGUMENT when a name is needed, NOT_FOUND that lists the names. A model that the caller
  // may not use is as if it were not there.
  Result<std::shared_ptr<const ServedModel>> find(const Caller& caller,
                                                  const std::string& name) const;

  // UNAVAILABLE before open().
  Status ready() const;

  // Before open() only for whoever adds.
  const ByName& all() const { return models_; }
  // Those that the caller may use.
  ByName all_for(const Caller& caller) const;

 private:
  ByName models_;  // does not change after open()
  std::atomic<bool> open_{false};
};

}  // namespace runnel

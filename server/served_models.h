// The models that this server serves, by name, and whether it serves yet.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "models/bundle/bundle.h"
#include "runnel/v1/models.pb.h"

namespace runnel {

class Backend;

// One model and all that runs it. Destroyed from the bottom up: the engine, and with it the model,
// before the backend.
struct ServedModel {
  std::string name;
  v1::ModelInfo info;                          // all but sessions_free, which changes
  std::shared_ptr<const Tokenizer> tokenizer;  // null where values are not text
  std::shared_ptr<Backend> backend;            // null where the model has none (a fake)
  std::unique_ptr<Engine> engine;
};

// What `bundle` served as `name` by `engine` is, for the clients.
v1::ModelInfo describe_model(const std::string& name, const Bundle& bundle, const Engine& engine);

class ServedModels {
 public:
  // Before open(). ALREADY_EXISTS when there is one of that name.
  Status add(ServedModel model);
  // From here calls find what was added.
  void open() { open_.store(true, std::memory_order_release); }
  bool is_open() const { return open_.load(std::memory_order_acquire); }

  // The model of that name; the only one where `name` is empty. UNAVAILABLE before open(),
  // INVALID_ARGUMENT when a name is needed, NOT_FOUND that lists the names.
  Result<const ServedModel*> find(const std::string& name) const;

  // UNAVAILABLE before open().
  Status ready() const;

  // By name. Before open() only for whoever adds.
  const std::map<std::string, ServedModel>& all() const { return models_; }

 private:
  std::string names() const;

  std::map<std::string, ServedModel> models_;  // does not change after open()
  std::atomic<bool> open_{false};
};

}  // namespace runnel

#include "server/served_models.h"

#include "base/text.h"
#include "models/bundle/config.h"

namespace runnel {

v1::ModelInfo describe_model(const std::string& name, const Bundle& bundle, const Engine& engine) {
  const Spec& spec = bundle.spec;
  v1::ModelInfo info;
  info.set_name(name);
  info.set_spec_json(spec_to_json(spec));
  info.set_parameters(spec.parameters());
  info.set_state_bytes(engine.state_bytes());
  info.set_sessions(engine.stats().sessions);
  info.set_numerics(engine.numerics());
  info.set_backend(engine.numerics().substr(0, engine.numerics().find('/')));
  info.set_weight_digest(bundle.weight_digest);
  info.set_vocabulary(spec.vocabulary);
  info.set_max_length(spec.max_length());
  if (spec.image) {
    info.mutable_image()->set_height(spec.image->height);
    info.mutable_image()->set_width(spec.image->width);
    info.mutable_image()->set_channels(spec.image->channels);
  }
  for (const std::string& symbol : spec.symbols) info.add_symbols(symbol);
  info.set_has_begin(spec.begin.has_value());
  info.set_head(head_kind_name(spec.head.kind));
  info.set_has_text(bundle.tokenizer != nullptr);
  return info;
}

Status ServedModels::add(ServedModel model) {
  const std::string name = model.name;
  if (models_.contains(name)) {
    return {Code::kAlreadyExists, "two models are named " + quote(name) +
                                      "; give one another name, as in 'runnel serve other=DIR'"};
  }
  models_.emplace(name, std::move(model));
  return {};
}

Status ServedModels::ready() const {
  if (is_open()) return {};
  Status status(Code::kUnavailable, "the server is not ready: it is loading its models; try again");
  return status.with_retry_after(std::chrono::milliseconds(500));
}

Result<const ServedModel*> ServedModels::find(const std::string& name) const {
  if (Status s = ready(); !s.ok()) return s;
  if (name.empty() && models_.size() == 1) return &models_.begin()->second;
  if (name.empty()) {
    return invalid_argument("model is empty, and this server has several: name one of " + names());
  }
  const auto found = models_.find(name);
  if (found != models_.end()) return &found->second;
  return not_found("no model " + quote(name) + "; this server has " + names());
}

std::string ServedModels::names() const {
  std::string names;
  for (const auto& [name, model] : models_) names += (names.empty() ? "" : ", ") + quote(name);
  return names.empty() ? "none" : names;
}

}  // namespace runnel

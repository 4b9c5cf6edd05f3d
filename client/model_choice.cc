#include "client/model_choice.h"

#include <algorithm>

#include "base/text.h"

namespace runnel {
namespace {

std::string names_of(const v1::ListModelsResponse& models) {
  std::string names;
  for (const v1::ModelInfo& model : models.models()) {
    names += (names.empty() ? "" : ", ") + quote(model.name());
  }
  return names;
}

// Checks the server's figures before allocating memory for them.
Status check_image(const v1::ModelInfo& model, const ImageShape& shape) {
  const bool sides = shape.height >= 1 && shape.width >= 1 && shape.height <= kMaxImageSide &&
                     shape.width <= kMaxImageSide &&
                     int64_t{shape.height} * shape.width <= kMaxImagePixels;
  const bool channels = shape.channels == 1 || shape.channels == 3;
  if (sides && channels && model.vocabulary() <= 256 && model.max_length() == shape.bytes()) {
    return {};
  }
  return invalid_argument("model " + quote(model.name()) + " of the server draws images of " +
                          std::to_string(shape.height) + " x " + std::to_string(shape.width) +
                          " x " + std::to_string(shape.channels) + " in sequences of " +
                          std::to_string(model.max_length()) +
                          " values, which this program cannot show");
}

Result<ModelView> view_of(const v1::ModelInfo& model) {
  ModelView view;
  view.name = model.name();
  view.numerics = model.numerics();
  view.vocabulary = model.vocabulary();
  view.max_length = model.max_length();
  view.symbols.assign(model.symbols().begin(), model.symbols().end());
  view.has_begin = model.has_begin();
  view.has_text = model.has_text();
  view.chat = model.chat();
  if (view.vocabulary < 1) {
    return invalid_argument("model " + quote(model.name()) + " of the server has no values");
  }
  if (model.has_image()) {
    view.image = ImageShape{.height = model.image().height(),
                            .width = model.image().width(),
                            .channels = model.image().channels()};
    if (Status status = check_image(model, *view.image); !status.ok()) return status;
  }
  return view;
}

}  // namespace

Result<ModelView> choose_model(const v1::ListModelsResponse& models, const std::string& name) {
  const auto& all = models.models();
  if (all.empty()) return not_found("the server has no model: start it with one");
  if (name.empty() && all.size() > 1) {
    return invalid_argument("the server has several models (" + names_of(models) +
                            "): choose one with --model");
  }
  if (name.empty()) return view_of(all[0]);
  auto found = std::ranges::find(all, name, &v1::ModelInfo::name);
  if (found == all.end()) {
    found = std::ranges::find_if(all, [&](const v1::ModelInfo& model) {
      return std::ranges::find(model.aliases(), name) != model.aliases().end();
    });
  }
  if (found != all.end()) return view_of(*found);
  return not_found("the server has no model " + quote(name) + "; it has " + names_of(models));
}

}  // namespace runnel

#include "tests/server/test_models.h"

#include <gtest/gtest.h>

#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "models/make_model.h"
#include "tests/models/bundle/bundle_writer.h"

namespace runnel {

ServedModel served_bundle(const Spec& spec, uint64_t seed, const EngineOptions& options,
                          const ModelLimits& limits) {
  const Bundle bundle = random_bundle(spec, seed);
  ServedModel served;
  served.name = spec.name;
  auto backend = make_cpu_backend({.isa = {}, .threads = 1});
  EXPECT_TRUE(backend.ok());
  served.tokenizer = bundle.tokenizer;
  served.backend = std::move(*backend);
  auto model = make_model(bundle, *served.backend, limits);
  EXPECT_TRUE(model.ok());
  served.engine = std::make_unique<Engine>(std::move(*model), options, real_clock());
  served.weight_digest = *bundle.digest();
  return served;
}

ServedModel served_fake(const std::string& name, std::function<void()> on_submit,
                        const EngineOptions& options, const ModelLimits& limits, const Spec& spec) {
  auto model = std::make_unique<FakeModel>(spec, limits);
  model->on_submit = std::move(on_submit);
  ServedModel served;
  served.name = name;
  served.engine = std::make_unique<Engine>(std::move(model), options, real_clock());
  return served;
}

}  // namespace runnel

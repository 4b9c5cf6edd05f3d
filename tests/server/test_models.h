// Models as the server serves them, made for tests.
#pragma once

#include <functional>
#include <string>

#include "engine/engine.h"
#include "server/host/served_models.h"
#include "tests/base/eventually.h"
#include "tests/engine/fake_model.h"

namespace runnel {

// What a test's model may hold and do at once.
inline constexpr ModelLimits kTestLimits = {.slots = 8, .rows = 8, .values = 32, .steps = 1};

// Random weights on the CPU backend.
ServedModel served_bundle(const Spec& spec, uint64_t seed, const EngineOptions& options = {},
                          const ModelLimits& limits = kTestLimits);

// A model without arithmetic, that calls `on_submit` before every step.
ServedModel served_fake(const std::string& name, std::function<void()> on_submit = {},
                        const EngineOptions& options = {}, const ModelLimits& limits = kTestLimits,
                        const Spec& spec = fake_spec());

}  // namespace runnel

// Models for tests, in the form in which the server holds them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "server/host/served_models.h"
#include "tests/base/eventually.h"
#include "tests/engine/fake_model.h"

namespace runnel {

// The limits of a test's model.
inline constexpr ModelLimits kTestLimits = {.slots = 8, .rows = 8, .values = 32, .steps = 1};

// A client may stop reading for as long as a test takes.
inline const EngineOptions kTestEngine = {.stall_timeout = kPatience};

// Called in each step of a fake model, so that a call is still in progress when the test acts.
inline void slowly() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// A model with random weights on the CPU backend.
ServedModel served_bundle(const Spec& spec, uint64_t seed,
                          const EngineOptions& options = kTestEngine,
                          const ModelLimits& limits = kTestLimits);

// A model without arithmetic that calls `on_submit` before every step.
ServedModel served_fake(const std::string& name, std::function<void()> on_submit = {},
                        const EngineOptions& options = kTestEngine,
                        const ModelLimits& limits = kTestLimits, const Spec& spec = fake_spec());

}  // namespace runnel

#include "server/host/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/test_models.h"

namespace runnel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ServedModels, AreFoundByNameOnceOpen) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_EQ(models.find({}, "a").status().code(), Code::kUnavailable);
  models.open();
  EXPECT_EQ((*models.find({}, "a"))->name, "a");
  EXPECT_EQ((*models.find({}, ""))->name, "a");
  EXPECT_EQ(models.find({}, "b").status().message(), "no model 'b'; this server has 'a'");
}

TEST(ServedModels, NamesAreUnique) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_EQ(models.add(served_fake("a")).code(), Code::kAlreadyExists);
}

TEST(ServedModels, AMessageNamesTheFirstOfManyModels) {
  ServedModels models;
  models.open();
  for (char last = 'a'; last <= 'q'; ++last) {
    EXPECT_TRUE(models.add(served_fake(std::string(50, 'm') + last)).ok());
    if (last != 'p') continue;
    EXPECT_THAT(models.find({}, "x").status().message(),
                EndsWith("mo', '" + std::string(50, 'm') + "p'"));
  }
  EXPECT_TRUE(models.add(served_fake(std::string(50, 'm') + "r")).ok());
  EXPECT_THAT(models.find({}, "x").status().message(), EndsWith("mp' and 2 more"));
  EXPECT_THAT(models.find({}, "").status().message(), EndsWith("mp' and 2 more"));
}

TEST(ServedModels, AModelThatACallerMayNotUseIsNotFound) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_TRUE(models.add(served_fake("b")).ok());
  models.open();
  Caller caller;
  caller.models = {"b"};
  EXPECT_EQ(models.find(caller, "a").status().message(), "no model 'a'; this server has 'b'");
  EXPECT_EQ((*models.find(caller, ""))->name, "b");
  EXPECT_EQ(models.all_for(caller).size(), 1U);
  EXPECT_THAT(models.find({}, "").status().message(), HasSubstr("name one of 'a', 'b'"));
}

TEST(ServedModels, AreFoundByTheirAliases) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_TRUE(models.add(served_fake("b")).ok());
  models.open();
  models.set_aliases({{"latest", "a"}, {"first", "a"}, {"b", "a"}, {"lost", "c"}});
  EXPECT_EQ((*models.find({}, "latest"))->name, "a");
  EXPECT_EQ((*models.find({}, "b"))->name, "b") << "a model's own name goes before";
  EXPECT_EQ(models.find({}, "lost").status().code(), Code::kNotFound);
  EXPECT_EQ(models.aliases_of("a"), (std::vector<std::string>{"first", "latest"}));
  EXPECT_TRUE(models.retire("b").ok());
  EXPECT_EQ((*models.find({}, "b"))->name, "a") << "until that model is gone";
  models.set_aliases({});
  EXPECT_EQ(models.find({}, "latest").status().code(), Code::kNotFound);
}

TEST(ServedModels, ACallerMayUseAModelByAnyOfItsNames) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  EXPECT_TRUE(models.add(served_fake("b")).ok());
  models.open();
  models.set_aliases({{"latest", "a"}, {"b", "a"}});
  Caller caller;
  caller.models = {"latest"};
  EXPECT_EQ((*models.find(caller, "latest"))->name, "a");
  EXPECT_EQ((*models.find(caller, "a"))->name, "a");
  EXPECT_EQ((*models.find(caller, ""))->name, "a");
  EXPECT_EQ(models.find(caller, "b").status().code(), Code::kNotFound);
  caller.models = {"a"};
  EXPECT_EQ((*models.find(caller, "latest"))->name, "a");
  caller.models = {"b"};
  EXPECT_EQ(models.find(caller, "latest").status().code(), Code::kNotFound);
  EXPECT_EQ((*models.find(caller, ""))->name, "b") << "not what its name would be an alias of";
}

TEST(ServedModels, ModelsAddedDuringADrainDrainToo) {
  ServedModels models;
  models.open();
  models.drain();
  EXPECT_TRUE(models.add(served_fake("late")).ok());
  const auto model = *models.find({}, "late");
  GenerateRequest request;
  request.prompt = {1};
  request.max_values = 1;
  const auto stream =
      std::make_shared<TokenStream>(Delivery(), model->engine->stream_room(1), 0, [] {});
  EXPECT_EQ(model->engine->generate(request, stream).code(), Code::kUnavailable);
}

// Notices when the model that holds `held` is destroyed.
struct Trace {
  std::shared_ptr<int> held = std::make_shared<int>();
  std::weak_ptr<int> seen = held;

  // A model that runs `step` before each of its steps.
  ServedModel model(const std::string& name, const std::function<void()>& step = {}) {
    return served_fake(name, [held = std::exchange(held, nullptr), step] {
      if (step) step();
    });
  }
  bool gone() const { return seen.expired(); }
};

TEST(ServedModels, ARetiredModelIsNotFoundAndIsFreedByItsLastUser) {
  ServedModels models;
  Trace a;
  EXPECT_TRUE(models.add(a.model("a")).ok());
  EXPECT_TRUE(models.add(served_fake("b")).ok());
  models.open();
  auto kept = *models.find({}, "a");
  EXPECT_TRUE(models.retire("a").ok());
  EXPECT_EQ(models.find({}, "a").status().message(), "no model 'a'; this server has 'b'");
  EXPECT_EQ(models.retire("a").code(), Code::kNotFound);
  EXPECT_EQ((*models.find({}, ""))->name, "b");
  EXPECT_FALSE(a.gone());
  EXPECT_TRUE(kept->engine->stats().sessions_free == 8);
  kept.reset();
  EXPECT_TRUE(eventually([&] { return a.gone(); }));
}

TEST(ServedModels, AReplacedModelStaysUntilItsLastUserReleasesIt) {
  ServedModels models;
  Trace old;
  EXPECT_EQ(models.replace(served_fake("a")).code(), Code::kNotFound);
  EXPECT_TRUE(models.add(old.model("a")).ok());
  models.open();
  auto kept = *models.find({}, "a");
  EXPECT_TRUE(models.replace(served_fake("a")).ok());
  EXPECT_NE(*models.find({}, "a"), kept);
  EXPECT_FALSE(old.gone());
  kept.reset();
  EXPECT_TRUE(eventually([&] { return old.gone(); }));
}

TEST(ServedModels, RetiringDoesNotWaitForTheRunningStep) {
  std::atomic<bool> in_step{false};
  std::atomic<bool> go{false};
  Trace slow;
  ServedModels models;
  EXPECT_TRUE(models
                  .add(slow.model("slow",
                                  [&] {
                                    in_step = true;
                                    go.wait(false);
                                  }))
                  .ok());
  models.open();
  GenerateRequest request;
  request.prompt = {1, 2};
  request.max_values = 1;
  {
    const auto model = *models.find({}, "slow");
    const auto stream =
        std::make_shared<TokenStream>(Delivery(), model->engine->stream_room(1), 0, [] {});
    EXPECT_TRUE(model->engine->generate(request, stream).ok());
    ASSERT_TRUE(eventually([&] { return in_step.load(); }));
    EXPECT_TRUE(models.retire("slow").ok());
  }
  EXPECT_FALSE(slow.gone()) << "its engine ends elsewhere, after the step";
  go = true;
  go.notify_all();
  EXPECT_TRUE(eventually([&] { return slow.gone(); }));
}

// Counts successful calls to "Generate" for the model with this name.
void count_calls(const ServedModels& models, const std::string& name, int calls) {
  const auto model = *models.find({}, name);
  for (int i = 0; i < calls; ++i) model->calls->count("Generate", {});
}

int64_t calls_of(const ServedModels& models, const std::string& name) {
  const auto figures = models.figures();
  const auto found = figures.find(name);
  return found == figures.end() ? -1 : found->second.calls.ended[0][0].value();
}

TEST(ServedModels, CountsOfARetiredModelStay) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("a")).ok());
  models.open();
  count_calls(models, "a", 3);
  auto kept = *models.find({}, "a");
  EXPECT_TRUE(models.replace(served_fake("a")).ok());
  count_calls(models, "a", 2);
  kept->calls->count("Generate", {});
  EXPECT_EQ(calls_of(models, "a"), 6);
  EXPECT_EQ(models.figures().at("a").slots, 16) << "both are there";
  kept.reset();
  ASSERT_TRUE(eventually([&] { return models.figures().at("a").slots == 8; }));
  EXPECT_EQ(calls_of(models, "a"), 6);
  EXPECT_TRUE(models.retire("a").ok());
  ASSERT_TRUE(eventually([&] { return models.figures().at("a").slots == 0; }));
  EXPECT_EQ(calls_of(models, "a"), 6);
}

TEST(ServedModels, TheNumberOfRetiredNamesIsBounded) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("stays")).ok());
  models.open();
  count_calls(models, "stays", 1);
  EXPECT_TRUE(models.replace(served_fake("stays")).ok());
  constexpr int kMore = ServedModels::kPastNames + 10;
  for (int i = 0; i < kMore; ++i) {
    const std::string name = "m" + std::to_string(i);
    EXPECT_TRUE(models.add(served_fake(name)).ok());
    count_calls(models, name, 1);
    EXPECT_TRUE(models.retire(name).ok());
  }
  const auto all = [&] {
    int64_t calls = 0;
    for (const auto& [name, figures] : models.figures()) {
      calls += figures.calls.ended[0][0].value();
    }
    return calls;
  };
  EXPECT_EQ(all(), kMore + 1);
  ASSERT_TRUE(eventually([&] { return models.figures().size() == ServedModels::kPastNames; }));
  EXPECT_EQ(all(), kMore + 1) << "no count is lost";
  EXPECT_EQ(calls_of(models, "stays"), 1) << "a name that is in use keeps its own";
  EXPECT_GE(calls_of(models, ServedModels::kOtherModels), 10);
}

TEST(ServedModels, ComeAndGoWhileOthersLookForThem) {
  ServedModels models;
  EXPECT_TRUE(models.add(served_fake("stays")).ok());
  models.open();
  std::vector<Trace> traces(50);
  std::atomic<bool> stop{false};
  std::vector<std::thread> finders;
  for (int t = 0; t < 3; ++t) {
    finders.emplace_back([&] {
      while (!stop) {
        EXPECT_TRUE(models.find({}, "stays").ok());
        const auto found = models.find({}, "comes");
        if (found.ok()) {
          EXPECT_EQ((*found)->engine->stats().sessions, 8);
        }
      }
    });
  }
  for (Trace& trace : traces) {
    EXPECT_TRUE(models.add(trace.model("comes")).ok());
    EXPECT_TRUE(models.retire("comes").ok());
  }
  stop = true;
  for (std::thread& finder : finders) finder.join();
  for (const Trace& trace : traces) EXPECT_TRUE(eventually([&] { return trace.gone(); }));
}

}  // namespace
}  // namespace runnel

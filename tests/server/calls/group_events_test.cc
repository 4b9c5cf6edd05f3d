#include "server/calls/group_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "models/text/load_tokenizer.h"

namespace runnel {
namespace {

using ::testing::ElementsAre;

// A group as a stream gives it: samples advance in any order, without gaps in their positions.
StreamGroup random_group(std::mt19937& random, int values, int samples, int top) {
  StreamGroup group;
  if (random() % 2 == 0) {
    group.started = Started{.session = "s", .seed = 9, .position = 3, .numerics = "n"};
  }
  std::vector<int64_t> next(samples, 100);
  for (int i = 0; i < values; ++i) {
    const int sample = static_cast<int>(random() % samples);
    const int count = top == 0 ? 0 : static_cast<int>(random() % (top + 1));
    group.values.push_back({.sample = sample,
                            .value = static_cast<int32_t>(random() % 256),
                            .position = next[sample]++,
                            .log_prob = -static_cast<float>(random() % 100),
                            .top_count = count});
    for (int j = 0; j < count; ++j) {
      group.top.push_back({static_cast<int32_t>(random() % 256), -static_cast<float>(j)});
    }
  }
  for (int i = 0; i < samples; ++i) group.finished.push_back({.sample = i});
  return group;
}

// The values of one sample, collected from the events or from the group.
struct Told {
  std::vector<int32_t> values, top;
  std::vector<int64_t> positions;
  std::vector<float> log_probs;
  std::vector<int32_t> top_counts;
  friend bool operator==(const Told&, const Told&) = default;
};

std::map<int, Told> told_by(const StreamGroup& group, bool with_top) {
  std::map<int, Told> all;
  auto top = group.top.begin();
  for (const StreamValue& value : group.values) {
    Told& told = all[value.sample];
    told.values.push_back(value.value);
    told.positions.push_back(value.position);
    told.log_probs.push_back(value.log_prob);
    if (with_top) told.top_counts.push_back(value.top_count);
    for (int i = 0; i < value.top_count; ++i, ++top) told.top.push_back(top->value);
  }
  return all;
}

void expect_complete(const StreamGroup& group, bool with_top) {
  GroupEvents events(nullptr, with_top);
  events.start(group);
  std::map<int, Told> all;
  std::vector<int> finished;
  bool started = false;
  while (const auto event = events.next()) {
    if (std::holds_alternative<Started>(*event)) {
      EXPECT_TRUE(all.empty() && !std::exchange(started, true));
    } else if (const auto* end = std::get_if<Finished>(&*event)) {
      finished.push_back(end->sample);
    } else {
      EXPECT_TRUE(finished.empty()) << "values before Finished";
      for (const ValueRun& run : std::get<SampledValues>(*event).runs) {
        Told& told = all[run.sample];
        for (size_t i = 0; i < run.values.size(); ++i) {
          told.positions.push_back(run.position + static_cast<int64_t>(i));
        }
        told.values.insert(told.values.end(), run.values.begin(), run.values.end());
        told.log_probs.insert(told.log_probs.end(), run.log_probs.begin(), run.log_probs.end());
        told.top_counts.insert(told.top_counts.end(), run.top_counts.begin(), run.top_counts.end());
        for (const TopLogProb& top : run.top) told.top.push_back(top.value);
      }
    }
  }
  EXPECT_EQ(all, told_by(group, with_top));
  EXPECT_EQ(started, group.started.has_value());
  EXPECT_EQ(finished.size(), group.finished.size());
  EXPECT_TRUE(std::ranges::is_sorted(finished));
}

TEST(GroupEvents, HoldEverythingInAGroupInOrder) {
  std::mt19937 random(17);
  for (int i = 0; i < 300; ++i) {
    const int samples = 1 + static_cast<int>(random() % 6);
    const int top = static_cast<int>(random() % 3);
    expect_complete(random_group(random, static_cast<int>(random() % 50), samples, top), top > 0);
  }
  expect_complete(random_group(random, 40000, 3, 20), true);
  expect_complete(random_group(random, 100000, 64, 0), false);
}

TEST(GroupEvents, TheQueueEventComesBeforeTheStart) {
  StreamGroup group;
  group.queued = Queued{.place = 2, .wait = {}};
  group.started = Started{};
  GroupEvents events;
  for (int round = 0; round < 2; ++round) {
    events.start(group);
    EXPECT_EQ(std::get<Queued>(*events.next()).place, 2);
    EXPECT_TRUE(std::holds_alternative<Started>(*events.next()));
    EXPECT_FALSE(events.next().has_value());
  }
}

TEST(GroupEvents, AValueAfterAGapBeginsARun) {
  StreamGroup group;
  group.values = {{.sample = 0, .value = 1, .position = 5},
                  {.sample = 0, .value = 2, .position = 6},
                  {.sample = 0, .value = 3, .position = 9}};
  GroupEvents events;
  events.start(group);
  const auto event = events.next();
  ASSERT_TRUE(event);
  const auto runs = std::get<SampledValues>(*event).runs;
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_THAT(runs[0].values, ElementsAre(1, 2));
  EXPECT_EQ(runs[1].position, 9);
  EXPECT_FALSE(events.next());
}

// The joined text of sample `sample` in the events of all `groups`.
std::string text_of(GroupEvents& events, const std::vector<StreamGroup>& groups, int sample) {
  std::string text;
  for (const StreamGroup& group : groups) {
    events.start(group);
    while (const auto event = events.next()) {
      const auto* values = std::get_if<SampledValues>(&*event);
      if (values == nullptr) continue;
      for (const ValueRun& run : values->runs) {
        EXPECT_EQ(valid_utf8_prefix(run.text), run.text.size()) << "whole characters";
        if (run.sample == sample) text += run.text;
      }
    }
  }
  return text;
}

TEST(GroupEvents, TextConsistsOfWholeCharactersPerSampleAcrossGroups) {
  const std::string river = "a\u5ddd";
  std::vector<StreamGroup> groups(river.size());
  for (size_t i = 0; i < river.size(); ++i) {  // two samples, one byte of each in every group
    const int32_t byte = static_cast<unsigned char>(river[i]);
    const auto position = static_cast<int64_t>(i);
    groups[i].values = {{.sample = 0, .value = byte, .position = position},
                        {.sample = 1, .value = 'x', .position = position}};
  }
  GroupEvents first(Tokenizer::of_bytes());
  EXPECT_EQ(text_of(first, groups, 0), river);
  GroupEvents second(Tokenizer::of_bytes());
  EXPECT_EQ(text_of(second, groups, 1), "xxxx");
}

TEST(GroupEvents, ASampleThatEndsWithinACharacterClosesWithAReplacement) {
  StreamGroup group;
  group.values = {{.sample = 0, .value = 0xe5, .position = 0}};
  group.finished = {{.sample = 0, .position = 1}};
  GroupEvents events(Tokenizer::of_bytes());
  EXPECT_EQ(text_of(events, {group}, 0), "\ufffd");
}

TEST(GroupEvents, AValueThatEndsASampleHasNoText) {
  StreamGroup group;
  group.values = {{.sample = 0, .value = '.', .position = 0},
                  {.sample = 0, .value = 'a', .position = 1},
                  {.sample = 0, .value = '.', .position = 2}};
  group.finished = {{.sample = 0, .position = 3}};
  GroupEvents events(Tokenizer::of_bytes(), false, {'.'});
  EXPECT_EQ(text_of(events, {group}, 0), ".a") << "a first value ends nothing";
  GroupEvents all(Tokenizer::of_bytes());
  EXPECT_EQ(text_of(all, {group}, 0), ".a.");
}

TEST(GroupEvents, ASequenceDoesNotBeginWithTheSpaceOfItsTokenizer) {
  const auto tokenizer = load_tokenizer("tests/golden/tokenizers/llama");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const int32_t the = (*tokenizer)->encode("the")->front();
  for (const int64_t position : {0, 1}) {
    StreamGroup group;
    group.values = {{.sample = 0, .value = the, .position = position}};
    GroupEvents events(*tokenizer);
    events.start(group);
    const auto event = events.next();
    ASSERT_TRUE(event.has_value());
    const std::string text = std::get<SampledValues>(*event).runs.front().text;
    EXPECT_EQ(text.starts_with(' '), position == 1) << text;
  }
}

}  // namespace
}  // namespace runnel

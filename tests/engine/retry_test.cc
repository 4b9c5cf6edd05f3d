// A call made again with its request_id gets the same stream from the start, however the first try
// ended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/call_record.h"
#include "tests/engine/expected.h"
#include "tests/engine/harness.h"
#include "tests/server/allocation_limit.h"

namespace runnel {
namespace {

GenerateRequest retryable(std::vector<int32_t> prompt, int64_t max_values) {
  GenerateRequest request = request_of(std::move(prompt), max_values);
  request.request_id = "call-1";
  request.session = "a";
  request.expected_position = 0;
  return request;
}

class RetryTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(harness_.create("a").ok()); }
  Harness harness_{fake_spec(), {.slots = 3, .rows = 2, .values = 4, .steps = 1}};
};

TEST_F(RetryTest, AFinishedCallIsSentAgainAndNothingIsComputed) {
  GenerateRequest request = retryable({1, 2}, 40);
  const auto first = harness_.generate(request);
  harness_.run();
  const size_t launches = harness_.model->launches.size();
  const auto again = harness_.generate(request, 8);  // room for fewer values than there are
  for (int i = 0; i < 20; ++i) harness_.turn();
  EXPECT_EQ(again->values, first->values);
  EXPECT_EQ(again->positions, first->positions);
  EXPECT_EQ(again->started->seed, first->started->seed);
  EXPECT_EQ(again->started->position, 0);
  ASSERT_EQ(again->finished.size(), 1U);
  EXPECT_EQ(again->finished[0].reason, first->finished[0].reason);
  EXPECT_EQ(again->finished[0].position, 42);
  EXPECT_TRUE(again->end->ok());
  EXPECT_EQ(harness_.model->launches.size(), launches);
  EXPECT_EQ(harness_.get("a")->position, 42);
}

TEST_F(RetryTest, ACancelledCallContinuesWhereItStopped) {
  for (const int turns : {1, 2, 3, 8, 20}) {  // some cancel in the prompt, some after it
    Harness harness(fake_spec(), {.slots = 3, .rows = 2, .values = 4, .steps = 1});
    ASSERT_TRUE(harness.create("a").ok());
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const GenerateRequest request = retryable(prompt, 30);
    const auto first = harness.generate(request);
    for (int i = 0; i < turns; ++i) harness.turn();
    first->stream->cancel();
    harness.run();
    const auto again = harness.generate(request);
    harness.run();
    EXPECT_TRUE(again->end->ok()) << again->end->to_string();
    EXPECT_EQ(again->values[0], expected(prompt, 30)) << turns;
    EXPECT_EQ(again->finished[0].sampled_values, 30);
    EXPECT_EQ(again->finished[0].prompt_values, 9);
    EXPECT_EQ(harness.get("a")->position, 39);
  }
}

TEST_F(RetryTest, ACallThatStillRunsIsTakenOver) {
  const GenerateRequest request = retryable({1}, 30);
  const auto first = harness_.generate(request);
  for (int i = 0; i < 5; ++i) harness_.turn();
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(first->end->code(), Code::kAborted);
  EXPECT_EQ(again->values[0], expected({1}, 30));
  EXPECT_TRUE(again->end->ok());
}

TEST_F(RetryTest, AStopSequenceIsFoundAcrossRetries) {
  const auto all = expected({1}, 30);
  GenerateRequest request = retryable({1}, 30);
  request.stop = {{all[3], all[4], all[5]}};
  request.delivery.max_values = 1;
  const auto first = harness_.generate(request);
  for (int i = 0; i < 5; ++i) harness_.turn();
  ASSERT_EQ(first->values[0].size(), 5U);
  first->stream->cancel();
  harness_.run();
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(again->finished[0].reason, FinishReason::kStop);
  EXPECT_EQ(again->values[0].size(), 6U);
}

TEST_F(RetryTest, AStopTextIsFoundAcrossRetries) {
  const auto all = expected({1}, 30);
  GenerateRequest request = retryable({1}, 30);
  request.tokenizer = number_tokenizer();
  request.stop_text = {""};
  for (int i = 3; i <= 5; ++i) request.stop_text[0] += request.tokenizer->bytes(all[i]);
  request.delivery.max_values = 1;
  const auto first = harness_.generate(request);
  for (int i = 0; i < 5; ++i) harness_.turn();
  ASSERT_EQ(first->values[0].size(), 5U);
  first->stream->cancel();
  harness_.run();
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(again->finished[0].reason, FinishReason::kStop);
  EXPECT_EQ(again->values[0].size(), 6U);
}

TEST_F(RetryTest, AnotherRequestUnderTheSameIdIsRefused) {
  harness_.generate(retryable({1}, 5));
  harness_.run();
  const auto other = harness_.generate(retryable({1, 2}, 5));
  harness_.run();
  EXPECT_EQ(other->end->code(), Code::kInvalidArgument);
  EXPECT_THAT(other->end->message(), testing::HasSubstr("'call-1' was used for another request"));
}

TEST(RetryMemory, ARecordKeepsToItsLimitOfBytes) {
  EngineOptions options;
  options.record_bytes = 10 * static_cast<int64_t>(sizeof(StreamValue));
  Harness harness(fake_spec(), Harness::default_limits(), options);
  for (const int64_t values : {10, 11}) {
    GenerateRequest request = request_of({1}, values);
    request.request_id = "call-" + std::to_string(values);
    request.keep = true;
    harness.generate(request);
    harness.run();
    const auto again = harness.generate(request);
    harness.run();
    if (values == 10) {
      EXPECT_EQ(again->values[0].size(), 10U);
    } else {
      EXPECT_EQ(again->end->to_string(),
                "ABORTED: the server does not keep all values of a call that is this long, so it "
                "cannot send them again: use a new request_id");
    }
  }
}

// A record lives as long as the session of its call, so it must keep neither a long prompt nor room
// for values that were never sampled.
TEST(RetryMemory, ARecordHoldsMemoryOnlyForItsSampledValues) {
  constexpr int kSessions = 20;
  Harness harness(fake_spec(), {.slots = 2 * kSessions, .rows = 1, .values = 1 << 20, .steps = 1});
  const auto in_use = [] {
    const auto info = mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const int64_t before = in_use();
  for (int i = 0; i < kSessions; ++i) {
    GenerateRequest request = request_of(std::vector<int32_t>(1 << 20, i), 50000);
    request.request_id = "call-" + std::to_string(i);
    request.keep = true;
    request.top_log_probs = 20;
    const auto reader = harness.generate(request);
    for (int turn = 0; turn < 3; ++turn) harness.turn();
    ASSERT_FALSE(reader->values[0].empty());
    reader->stream->cancel();
    harness.run();
    ASSERT_EQ(reader->end->code(), Code::kCancelled);
    harness.readers.clear();
  }
  EXPECT_EQ(harness.engine->stats().sessions_free, kSessions);
  EXPECT_LT((in_use() - before) / kSessions, 128 << 10);
}

TEST_F(RetryTest, ALaterCallOfTheSessionEndsRetriesOfTheEarlierOne) {
  const GenerateRequest request = retryable({1}, 5);
  harness_.generate(request);
  harness_.run();
  GenerateRequest next = request_of({}, 5);
  next.session = "a";
  harness_.generate(next);
  harness_.run();
  const auto again = harness_.generate(request);
  harness_.run();
  // By now the call would run anew, and expected_position forbids that.
  EXPECT_EQ(again->end->code(), Code::kAborted);
}

TEST_F(RetryTest, AKeptSequenceWithoutASessionIsFoundByItsId) {
  GenerateRequest request = request_of({3}, 10);
  request.keep = true;
  request.request_id = "new-1";
  const auto first = harness_.generate(request);
  for (int i = 0; i < 3; ++i) harness_.turn();
  first->stream->cancel();
  harness_.run();
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(again->started->session, first->started->session);
  EXPECT_EQ(again->values[0], expected({3}, 10));
  EXPECT_EQ(harness_.engine->stats().sessions_free, 1);  // "a" and this one use the rest
}

TEST_F(RetryTest, WithoutASessionTheSeedFollowsFromTheId) {
  GenerateRequest request = request_of({3}, 10);
  request.seed.reset();
  request.request_id = "free-1";
  const auto first = harness_.generate(request);
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(first->values, again->values);
  request.request_id = "free-2";
  const auto other = harness_.generate(request);
  harness_.run();
  EXPECT_NE(first->values, other->values);
}

TEST_F(RetryTest, ASessionThatIsSentAgainIsNotBusy) {
  const GenerateRequest request = retryable({1}, 40);
  harness_.generate(request);
  harness_.run();
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
  ASSERT_TRUE(harness_.engine->generate(request, slow->stream).ok());
  harness_.turn();
  GenerateRequest next = request_of({}, 5);
  next.session = "a";
  const auto rest = harness_.generate(next);
  harness_.run();
  EXPECT_TRUE(rest->end->ok());
  EXPECT_EQ(harness_.get("a")->position, 46);
}

// Otherwise retries whose clients do not read would keep any number of records alive.
TEST_F(RetryTest, ARetryIsAbortedWhenItsSessionDropsTheRecord) {
  const GenerateRequest request = retryable({1}, 40);
  GenerateRequest next = request_of({}, 5);
  next.session = "a";
  for (const bool ends : {false, true}) {
    harness_.generate(request);
    harness_.run();
    const auto slow = std::make_shared<Reader>();
    slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
    ASSERT_TRUE(harness_.engine->generate(request, slow->stream).ok());
    harness_.turn();
    slow->read();
    EXPECT_FALSE(slow->end);
    if (ends) {
      ASSERT_TRUE(harness_.remove("a").ok());
    } else {
      harness_.generate(next);
    }
    harness_.run();
    slow->read();
    ASSERT_TRUE(slow->end);
    EXPECT_EQ(slow->end->code(), Code::kAborted);
    EXPECT_THAT(slow->end->message(), testing::HasSubstr("before all of this one was sent again"));
    EXPECT_LT(slow->values[0].size(), 40U);
    if (!ends) {
      ASSERT_TRUE(harness_.remove("a").ok());
    }
    ASSERT_TRUE(harness_.create("a").ok());
  }
}

// The session of the kept sequence has continued, or now belongs to another call: the retry is
// refused, and no new sequence replaces the session.
TEST_F(RetryTest, AKeptSequenceDoesNotReplaceAnExistingSession) {
  GenerateRequest request = request_of({3}, 10);
  request.keep = true;
  request.request_id = "new-1";
  const auto first = harness_.generate(request);
  harness_.run();
  const std::string id = first->started->session;
  GenerateRequest next = request_of({}, 5);
  next.session = id;
  harness_.generate(next);
  harness_.run();
  const auto again = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(again->end->code(), Code::kAlreadyExists);
  EXPECT_THAT(again->end->message(), testing::HasSubstr("session '" + id + "' of request_id"));
  EXPECT_EQ(harness_.get(id)->position, 16);

  ASSERT_TRUE(harness_.remove(id).ok());
  ASSERT_TRUE(harness_.create(id).ok());  // another client chose that id
  const auto other = harness_.generate(request);
  harness_.run();
  EXPECT_EQ(other->end->code(), Code::kAlreadyExists);
  EXPECT_EQ(harness_.engine->stats().sessions_free, 1);
}

TEST_F(RetryTest, ALateRetryGetsTheWholeRecord) {
  GenerateRequest request = retryable({1}, 60);
  request.max_time = std::chrono::seconds(1);
  const auto first = harness_.generate(request);
  for (int i = 0; i < 41; ++i) harness_.turn();
  first->stream->cancel();
  harness_.run();
  ASSERT_GT(first->values[0].size(), 8U);
  const auto slow = std::make_shared<Reader>();
  slow->stream = std::make_shared<TokenStream>(request.delivery, 8, 0, [] {});
  ASSERT_TRUE(harness_.engine->generate(request, slow->stream).ok());
  harness_.turn();
  harness_.clock.advance(std::chrono::seconds(2));
  for (int i = 0; i < 100 && !slow->end; ++i) {
    slow->read();
    harness_.engine->turn();
  }
  ASSERT_EQ(slow->finished.size(), 1U);
  EXPECT_EQ(slow->finished[0].reason, FinishReason::kTime);
  EXPECT_EQ(std::ssize(slow->values[0]), slow->finished[0].sampled_values);
  EXPECT_EQ(slow->values[0], expected({1}, static_cast<int>(slow->values[0].size())));
}

// A call with a session in a store: another engine gets the session's state and the call's record.
class StoredRetryTest : public RetryTest {
 protected:
  void SetUp() override {
    RetryTest::SetUp();
    request_.stored = std::make_shared<StoredCall>();
  }

  // Makes the call on the first engine, and cancels it after `turns` turns.
  std::shared_ptr<Reader> make(int turns) {
    const auto first = harness_.generate(request_);
    for (int i = 0; i < turns; ++i) harness_.turn();
    first->stream->cancel();
    harness_.run();
    return first;
  }

  // A copy of the call's record, as a store returns it.
  std::shared_ptr<CallRecord> kept() {
    const auto record = request_.stored->record.lock();
    EXPECT_NE(record, nullptr);
    return record == nullptr ? nullptr : std::make_shared<CallRecord>(*record);
  }

  // Makes the same call on another engine, which imports the session as it is now.
  std::shared_ptr<Reader> make_elsewhere(const std::shared_ptr<CallRecord>& record) {
    const auto image = harness_.export_state("a");
    EXPECT_TRUE(image.ok()) << image.status().to_string();
    other_ = std::make_unique<Harness>(fake_spec(),
                                       ModelLimits{.slots = 3, .rows = 2, .values = 4, .steps = 1});
    EXPECT_TRUE(other_->import_state("a", *image).ok());
    GenerateRequest again = request_;
    again.stored = std::make_shared<StoredCall>();
    again.stored->refusal = Status(Code::kAborted, "it was saved");
    again.stored->before = record;
    const auto reader = other_->generate(again);
    other_->run();
    EXPECT_TRUE(reader->end);
    return reader;
  }

  GenerateRequest request_ = retryable({1, 2, 3, 4, 5, 6, 7, 8, 9}, 30);
  std::unique_ptr<Harness> other_;
};

TEST_F(StoredRetryTest, AFinishedCallIsSentAgainByAnotherEngine) {
  const auto first = make(100);
  ASSERT_EQ(first->finished.size(), 1U);
  const auto again = make_elsewhere(kept());
  EXPECT_TRUE(again->end->ok()) << again->end->to_string();
  EXPECT_EQ(again->values, first->values);
  EXPECT_EQ(again->positions, first->positions);
  EXPECT_EQ(again->log_probs, first->log_probs);
  EXPECT_EQ(again->started->position, 0);
  EXPECT_EQ(again->finished.at(0).prompt_values, 9);
  EXPECT_EQ(again->finished.at(0).elapsed, first->finished.at(0).elapsed);
  EXPECT_TRUE(other_->model->launches.empty()) << "nothing is computed";
  EXPECT_EQ(other_->get("a")->position, 39);
}

TEST_F(StoredRetryTest, ACancelledCallContinuesOnAnotherEngine) {
  for (const int turns : {1, 2, 3, 8, 20}) {  // some cancel in the prompt, some after it
    ASSERT_TRUE(harness_.remove("a").ok());
    ASSERT_TRUE(harness_.create("a").ok());
    make(turns);
    ASSERT_FALSE(kept()->finished);
    const auto again = make_elsewhere(kept());
    EXPECT_TRUE(again->end->ok()) << again->end->to_string();
    EXPECT_EQ(again->values[0], expected(request_.prompt, 30)) << turns;
    EXPECT_EQ(again->finished.at(0).prompt_values, 9);
    EXPECT_EQ(other_->get("a")->position, 39);
  }
}

TEST_F(StoredRetryTest, ARecordDoesNotChangeAfterItsCall) {
  make(8);
  const auto record = request_.stored->record.lock();
  ASSERT_NE(record, nullptr);
  const size_t sampled = record->values.size();
  ASSERT_GT(sampled, 0U);
  const auto again = harness_.generate(request_);
  harness_.run();
  EXPECT_EQ(again->values[0], expected(request_.prompt, 30));
  EXPECT_EQ(record->values.size(), sampled) << "a store may still read it";
  EXPECT_EQ(request_.stored->record.lock()->values.size(), 30U);
}

TEST_F(StoredRetryTest, ASavedCallWithoutARecordDoesNotRunAgain) {
  make(100);
  EXPECT_EQ(make_elsewhere(nullptr)->end->message(), "it was saved");
  EXPECT_EQ(other_->get("a")->position, 39);
}

TEST_F(StoredRetryTest, AnotherRequestUnderTheSameIdIsRefused) {
  make(100);
  request_.max_values = 31;
  EXPECT_THAT(make_elsewhere(kept())->end->message(),
              testing::HasSubstr("'call-1' was used for another request"));
}

// Anyone who can write to a store can write false records.
TEST_F(StoredRetryTest, AnInconsistentRecordIsRefused) {
  const std::vector<std::function<void(CallRecord&)>> wrongs = {
      [](auto& record) { record.values.pop_back(); },
      [](auto& record) { record.position = 1; },
      [](auto& record) { record.values[1].position = 0; },
      [](auto& record) { record.values[0].top_count = 1; },
      [](auto& record) { record.values[0].top_count = -1; },
      [](auto& record) { record.top.push_back({}); },
      [](auto& record) { record.values.clear(); },
      [](auto& record) { record.values.resize(31); }};
  for (const int turns : {20, 100}) {
    ASSERT_TRUE(harness_.remove("a").ok());
    ASSERT_TRUE(harness_.create("a").ok());
    make(turns);
    for (size_t i = 0; i < wrongs.size(); ++i) {
      const auto record = kept();
      wrongs[i](*record);
      EXPECT_EQ(make_elsewhere(record)->end->code(), Code::kDataLoss) << i;
    }
  }
  const auto late = kept();
  late->finished->position = 40;
  EXPECT_EQ(make_elsewhere(late)->end->code(), Code::kDataLoss);
}

TEST(RetryMemory, ARecordOfAStoreKeepsToItsLimitOfBytes) {
  EngineOptions options;
  options.record_bytes = 10 * static_cast<int64_t>(sizeof(StreamValue));
  GenerateRequest request = retryable({1}, 11);
  request.stored = std::make_shared<StoredCall>();
  Harness one;
  ASSERT_TRUE(one.create("a").ok());
  one.generate(request);
  one.run();
  Harness two(fake_spec(), Harness::default_limits(), options);
  ASSERT_TRUE(two.import_state("a", *one.export_state("a")).ok());
  request.stored->before = std::make_shared<CallRecord>(*request.stored->record.lock());
  const auto again = two.generate(request);
  two.run();
  EXPECT_THAT(again->end->message(), testing::HasSubstr("it cannot send them again"));
}

TEST(RetryMemory, ARetryWithoutMemoryForItsRecordDoesNotWaitForASlot) {
  Harness harness(fake_spec(0, true));
  ASSERT_TRUE(harness.create("a").ok());
  GenerateRequest request = retryable({1, 2}, 1200);
  request.begin = true;
  request.max_queue_time = kSecond;
  request.stored = std::make_shared<StoredCall>();
  const auto first = harness.generate(request);
  for (int i = 0; i < 1100; ++i) harness.turn();
  ASSERT_GT(first->values[0].size(), 1000U);
  first->stream->cancel();
  harness.run();
  const auto refused = harness.generate(request);
  {
    const AllocationLimit limit(16 << 10);  // less than the record, and not for this thread
    std::thread([&] { harness.engine->turn(); }).join();
  }
  harness.run();
  ASSERT_TRUE(refused->end);
  EXPECT_EQ(refused->end->reason(), "memory");
  const auto again = harness.generate(request);
  harness.run();
  EXPECT_TRUE(again->end->ok()) << again->end->to_string();
  EXPECT_EQ(again->values[0], expected({7, 1, 2}, 1200));
}

}  // namespace
}  // namespace runnel

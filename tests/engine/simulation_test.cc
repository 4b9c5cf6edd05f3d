// Runs the real engine on a virtual clock with a fake model and random clients, from one seed. The
// clients do everything that clients and stores can do: calls, retries, cancels, forks, rewinds,
// exports, imports, saves and loads. Readers stall, deadlines pass, pools are full, calls wait,
// stores fail, and servers lose sessions, which are then deleted. After every step the counts must
// agree. At the end every call has ended exactly once with the values that it would have got alone.
// StoreSimulation (tests/server) includes the store itself.
//
// To repeat a failing seed: RUNNEL_SIMULATION_SEED=17 test_engine
// --gtest_filter='Simulation.*'

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>

#include "engine/rewinds.h"
#include "tests/engine/harness.h"

namespace runnel {
namespace {

// A Generate call as its client sees it.
struct Call {
  GenerateRequest request;
  std::shared_ptr<Reader> reader;
  bool reads = true;
  bool cancelled = false;
  bool settled = false;       // its values were checked after its end
  std::vector<int32_t> left;  // the most values that its session held then

  // The session that the call continued or made. Empty if the server has not named it yet.
  std::string session() const {
    if (request.session) return *request.session;
    return reader->started ? reader->started->session : "";
  }
};

// A Score call, whose chunks are sent one after the other.
struct Scoring {
  std::shared_ptr<ScoreCall> call;
  std::vector<int32_t> values;
  size_t given = 0;
  std::vector<float> log_probs;
  bool waits = false;
  bool over = false;
  bool crosses = false;  // a chunk is sent although the call has ended
  int answers = 0, chunks = 0;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        recent_(chance(50) ? 1 + below(6) : 0),
        options_(options()),
        harness_(fake_spec(), limits(), options_) {
    harness_.model->on_submit = [this] { harness_.clock.advance(below(5) * kMs); };
    const int faults = chance(10) ? 1 : 0;
    harness_.model->fails = [this, faults] { return chance(faults); };
  }

  void run() {
    const int ticks = 50 + below(150);
    for (int tick = 0; tick < ticks && !testing::Test::HasFailure(); ++tick) {
      act();
      turn();
      check_books();
    }
    wind_down();
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  ModelLimits limits() {
    ModelLimits limits = {.slots = 1 + below(8),
                          .rows = 1 + below(8),
                          .values = 1 + below(12),
                          .steps = 1 + below(4),
                          .recent = recent_,
                          .launches = 1 + below(2)};
    limits.slots *= static_cast<int>(1 + snapshots_of(options_, limits.steps));
    return limits;
  }
  EngineOptions options() {
    EngineOptions options;
    options.mailbox = 1 + below(8);
    options.stream_room = 4 + below(30);
    options.queue = below(8);
    options.sessions_per_caller = chance(20) ? 1 + below(4) : 0;
    options.stall_timeout = 500 * kMs;
    options.idle_timeout = chance(20) ? 400 * kMs : Duration(std::chrono::hours(1));
    options.rewind_values = chance(70) ? 1 + below(40) : 0;
    options.rewind_every = 1 + below(12);
    options.prefix_cache_bytes = chance(70) ? (8 + 4 * recent_) * below(12) : 0;
    options.prefix_least = 1 + below(6);
    return options;
  }

  std::vector<int32_t> random_values(int most) {
    std::vector<int32_t> values(below(most + 1));
    for (int32_t& value : values) value = below(100);
    return values;
  }
  // Random values, or those of an earlier call, perhaps with some of its answer, and a few more.
  std::vector<int32_t> random_prompt() {
    std::vector<int32_t> values = random_values(chance(20) ? 60 : 6);
    if (calls_.empty() || chance(50)) return values;
    const Call& earlier = *calls_[below(static_cast<int>(calls_.size()))];
    std::vector<int32_t> prompt = earlier.request.prompt;
    const auto answer = earlier.reader->values.find(0);
    if (answer != earlier.reader->values.end()) {
      prompt.insert(prompt.end(), answer->second.begin(), answer->second.end());
    }
    if (chance(40)) prompt.resize(static_cast<size_t>(below(static_cast<int>(prompt.size()) + 1)));
    prompt.insert(prompt.end(), values.begin(), values.end());
    prompt.resize(std::min<size_t>(prompt.size(), 200));
    return prompt;
  }
  // One of four ids, or the id of a session that a call has made.
  std::string random_session() {
    if (!calls_.empty() && chance(20)) {
      const std::string made = calls_[below(static_cast<int>(calls_.size()))]->session();
      if (!made.empty()) return made;
    }
    return std::string(1, static_cast<char>('a' + below(4)));
  }

  void act() {
    switch (below(10)) {
      case 0:
        create();
        break;
      case 1:
        if (chance(20)) remove(random_session());
        break;
      case 2:
      case 3:
      case 4:
        generate();
        break;
      case 5:
        score();
        break;
      case 6:
        disturb();
        break;
      case 7:
        move();
        break;
      default:
        harness_.clock.advance(below(30) * kMs);
    }
  }

  void create() {
    harness_.engine->create_session({}, random_session(), [this](Result<SessionInfo> made) {
      const Code code = made.status().code();
      EXPECT_TRUE(made.ok() || code == Code::kAlreadyExists || code == Code::kResourceExhausted ||
                  failed());
    });
  }

  void remove(const std::string& session) {
    harness_.engine->delete_session({"", session}, [this](Status status) {
      const Code code = status.code();
      EXPECT_TRUE(status.ok() || code == Code::kNotFound || code == Code::kAborted ||
                  code == Code::kResourceExhausted || failed());
    });
  }

  void move() {
    switch (below(5)) {
      case 0:
        return fork(random_session());
      case 1:
        return carry(random_session());
      case 2:
        return store(random_session());
      case 3:
        return hold(random_session());
      default:
        return rewind(random_session());
    }
  }

  // Forks a session to one to three others.
  void fork(const std::string& parent) {
    ++moving_;
    std::vector<std::string> children;
    std::vector<Call*> made;
    for (int i = 1 + below(3); i > 0; --i) {
      children.push_back(chance(50) ? random_session() : "f" + std::to_string(made_++));
      made.push_back(&add_moved(children.back()));
    }
    harness_.engine->fork_session({}, parent, children, [this, parent, made](const auto& forked) {
      if (!expect_moved(forked.status())) return;
      for (size_t i = 0; i < made.size(); ++i) {
        made[i]->left = known_of(parent, *made[i], (*forked)[i].position);
      }
    });
  }

  // Exports a session and imports it under another name.
  void carry(const std::string& from) {
    ++moving_;
    const auto image = std::make_shared<StateImage>();
    const Call& mark = add_moved(from);
    harness_.engine->export_session({"", from}, image, [this, from, image, &mark](const auto& out) {
      if (!expect_moved(out.status())) return;
      ++moving_;
      const auto known = known_of(from, mark, image->position);
      const std::string name = chance(50) ? random_session() : "i" + std::to_string(made_++);
      Call& made = add_moved(name);
      harness_.engine->import_session({}, name, image, [this, known, &made](const auto& in) {
        if (expect_moved(in.status())) made.left = known;
      });
    });
  }

  // Saves a session, which may then be evicted, or loads it as it was saved.
  void store(const std::string& session) {
    ++moving_;
    Call& mark = add_moved(session);
    const auto saved = saved_.find(session);
    if (saved != saved_.end() && chance(60)) {
      const auto& [image, known] = saved->second;
      harness_.engine->import_session({}, session, image, [this, known, &mark](const auto& in) {
        if (expect_moved(in.status())) mark.left = known;
      });
      return;
    }
    const auto image = std::make_shared<StateImage>();
    const MoveDone done = [this, session, image, &mark](const auto& out) {
      if (!expect_moved(out.status())) return;
      if (chance(10)) return remove(session);  // the save failed
      saved_[session] = {image, known_of(session, mark, image->position)};
      harness_.engine->mark_saved({"", session}, image->position);
    };
    if (chance(50)) return harness_.engine->export_session({"", session}, image, done);
    image->bytes.resize(static_cast<size_t>(harness_.engine->state_bytes()));
    harness_.engine->copy_at_rest({"", session}, image, done);
  }

  // A call on a stored session is about to change it. From then on it must not be evicted.
  void hold(const std::string& session) {
    ++moving_;
    harness_.engine->hold_session({"", session}, [this](const Result<SessionInfo>& here) {
      --moving_;
      const Code code = here.status().code();
      EXPECT_TRUE(here.ok() || code == Code::kNotFound || code == Code::kResourceExhausted ||
                  failed());
    });
  }

  // Rewinds to a position that may be in the future, or too old.
  void rewind(const std::string& session) {
    ++moving_;
    Call& mark = add_moved(session);
    const int64_t position = below(80);
    harness_.engine->rewind_session({}, session, position,
                                    [this, session, position, &mark](const auto& back) {
                                      if (!expect_moved(back.status())) return;
                                      EXPECT_EQ((*back)[0].position, position);
                                      mark.left = known_of(session, mark, position);
                                    });
  }

  bool expect_moved(const Status& status) {
    --moving_;
    const Code code = status.code();
    EXPECT_TRUE(status.ok() || code == Code::kNotFound || code == Code::kAborted ||
                code == Code::kAlreadyExists || code == Code::kInvalidArgument ||
                code == Code::kResourceExhausted || failed() || code == Code::kOutOfRange ||
                code == Code::kCancelled ||  // a copy that a call has cancelled
                (code == Code::kFailedPrecondition && options_.rewind_values == 0) ||
                (drained_ && code == Code::kUnavailable))
        << status.to_string();
    return status.ok();
  }

  // Adds an entry to the calls for a state that a move brings into a session.
  Call& add_moved(const std::string& session) {
    auto call = std::make_unique<Call>();
    call->request.session = session;
    call->reader = std::make_shared<Reader>();
    call->reader->stream = std::make_shared<TokenStream>(Delivery(), 1, 0, [] {});
    call->reader->end = Status();
    call->settled = true;
    calls_.push_back(std::move(call));
    return *calls_.back();
  }

  void generate() {
    auto call = std::make_unique<Call>();
    GenerateRequest& request = call->request;
    request = request_of(random_prompt(), below(40), random_());
    if (chance(30)) request.shared = below(30);
    request.samples = chance(30) ? 1 + below(3) : 1;
    if (chance(50)) request.session = random_session();
    if (chance(30)) request.keep = chance(50);
    if (chance(20)) request.stop = {{below(100)}, {below(100), below(100)}};
    if (chance(20)) {
      request.tokenizer = number_tokenizer();
      request.stop_text = {std::to_string(below(10)) + ">", "><" + std::to_string(below(100))};
    }
    if (chance(20)) request.max_time = (1 + below(60)) * kMs;
    // Calls on sessions do not wait: while they waited, later calls could change the session.
    if (!request.session && chance(40)) request.max_queue_time = below(300) * kMs;
    request.delivery = {.max_values = 1 + below(20), .max_delay = below(30) * kMs};
    if (recent_ > 0 && chance(30)) request.penalties = random_penalties();
    if (chance(15)) make_retryable(request);
    // Callers share the steps. All sessions belong to the caller without a name.
    const bool alone = !request.session && !request.keep && request.request_id.empty();
    if (alone && chance(50)) {
      request.caller.account = std::string(1, static_cast<char>('a' + below(3)));
    }
    call->reads = chance(90);
    call->reader = harness_.generate(request);
    harness_.readers.clear();  // the simulation decides which streams are read
    calls_.push_back(std::move(call));
  }

  std::shared_ptr<const Penalties> random_penalties() {
    const auto number = [this] { return static_cast<float>(below(400) - 200) / 100.0F; };
    Penalties penalties = {2.5F + number(), number(), number(), {}};
    if (chance(50)) penalties.logit_bias = {{below(50), number()}, {50 + below(50), number()}};
    return std::make_shared<const Penalties>(penalties);
  }

  // Makes the request a sequence that is kept under a request_id, or repeats an earlier one.
  void make_retryable(GenerateRequest& request) {
    request.session.reset();
    request.samples = 1;
    request.keep = true;
    request.request_id = "call-" + std::to_string(below(4));
    for (const auto& earlier : calls_) {
      if (earlier->request.request_id != request.request_id) continue;
      request = earlier->request;
      return;
    }
  }

  void score() {
    const Duration waits = chance(40) ? below(300) * kMs : Duration(0);
    const auto started = harness_.engine->start_score({}, {}, false, false, waits);
    EXPECT_TRUE(started.ok() || failed());
    if (!started.ok()) return;
    auto scoring = std::make_unique<Scoring>();
    scoring->call = *started;
    scoring->values = random_values(50);
    scoring->values.push_back(1);
    scorings_.push_back(std::move(scoring));
  }

  // Cancels a call, or makes its client stop or resume reading.
  void disturb() {
    if (calls_.empty()) return;
    Call& call = *calls_[below(static_cast<int>(calls_.size()))];
    if (chance(50)) {
      call.cancelled = true;
      call.reader->stream->cancel();
    } else {
      call.reads = !call.reads;
    }
    if (chance(30) && !scorings_.empty()) {
      Scoring& scoring = *scorings_[below(static_cast<int>(scorings_.size()))];
      scoring.over = true;
      scoring.crosses = chance(50);
      harness_.engine->end_score(scoring.call);
    }
  }

  void give_chunk(Scoring& scoring) {
    if (scoring.waits || (scoring.over && !scoring.crosses)) return;
    if (scoring.given == scoring.values.size()) {
      scoring.over = true;
      scoring.crosses = false;
      harness_.engine->end_score(scoring.call);
      return;
    }
    if (scoring.over && chance(50)) return;  // sends before or after the end is noticed
    scoring.crosses = false;
    const size_t count = 1 + below(static_cast<int>(scoring.values.size() - scoring.given));
    const auto begin = scoring.values.begin() + static_cast<std::ptrdiff_t>(scoring.given);
    scoring.waits = true;
    const Status put = harness_.engine->score(
        scoring.call, {begin, begin + static_cast<std::ptrdiff_t>(count)},
        [this, &scoring, count](Result<ScoredChunk> scored) {
          ++scoring.answers;
          scoring.waits = false;
          if (!scored.ok()) {
            const Code code = scored.status().code();
            EXPECT_TRUE(scoring.over || code == Code::kResourceExhausted ||
                        (drained_ && code == Code::kUnavailable) || failed());
            scoring.over = true;
            return;
          }
          scoring.given += count;
          scoring.log_probs.insert(scoring.log_probs.end(), scored->log_probs.begin(),
                                   scored->log_probs.end());
        });
    if (put.ok()) {
      ++scoring.chunks;
    } else {
      scoring.waits = false;
    }
  }

  void turn() {
    for (const auto& scoring : scorings_) give_chunk(*scoring);
    harness_.engine->turn();
    for (const auto& call : calls_) {
      if (call->reads || call->cancelled) call->reader->read();
      if (call->reader->end) settle(*call);
    }
  }

  // Checks a call that has ended: its values must be those of its sequence alone, and its session
  // continues from there.
  void settle(Call& call) {
    if (call.settled) return;
    call.settled = true;
    Reader& reader = *call.reader;
    reader.read();
    const GenerateRequest& request = call.request;
    EXPECT_TRUE(request.max_queue_time > Duration(0) || reader.queued.empty());
    for (const Queued& queued : reader.queued) EXPECT_GE(queued.place, 1);
    if (!reader.started) {
      EXPECT_FALSE(reader.end->ok());
      return;
    }
    std::vector<int32_t> given = known_before(call);
    given.insert(given.end(), request.prompt.begin(), request.prompt.end());
    for (auto& [sample, values] : reader.values) {
      const auto count = static_cast<int>(values.size());
      const auto stream = static_cast<uint32_t>(sample);
      EXPECT_EQ(values, FakeModel::expected(fake_spec(), given, *request.seed, stream, count,
                                            request.penalties.get(), recent_));
      EXPECT_LE(static_cast<int64_t>(values.size()), *request.max_values);
    }
    if (reader.end->ok()) {
      EXPECT_EQ(reader.finished.size(), static_cast<size_t>(request.samples));
      for (const Finished& finished : reader.finished) {
        EXPECT_LT(finished.cached_values, std::max<int64_t>(finished.prompt_values, 1));
        EXPECT_EQ(finished.sampled_values, std::ssize(reader.values[finished.sample]));
      }
    } else {
      const Code code = reader.end->code();
      EXPECT_TRUE(code == Code::kCancelled || code == Code::kAborted || failed())
          << reader.end->to_string();
    }
    if (reader.started->session.empty()) return;
    given.insert(given.end(), reader.values[0].begin(), reader.values[0].end());
    call.left = std::move(given);
  }

  // The values of the sequence when the call was admitted. Calls on one session follow each other,
  // so all earlier ones have ended, even if clients have not read all. A cancelled one may have
  // left fewer values than the client gave it.
  std::vector<int32_t> known_before(const Call& call) {
    if (!call.request.session) return {};
    return known_of(call.session(), call, call.reader->started->position);
  }

  // The values of a session up to a position, according to the calls before `call`.
  std::vector<int32_t> known_of(const std::string& session, const Call& call, int64_t position) {
    std::vector<int32_t> known;
    for (const auto& earlier : calls_) {
      if (earlier.get() == &call) break;
      earlier->reader->read();
      if (earlier->session() != session) continue;
      if (earlier->reader->end) settle(*earlier);
      // A repeated call may have ended before it was sent everything that the first try had left.
      const bool is_part = earlier->left.size() <= known.size() &&
                           std::equal(earlier->left.begin(), earlier->left.end(), known.begin());
      const bool again = !earlier->request.request_id.empty();
      if (earlier->settled && !earlier->left.empty() && !(again && is_part)) known = earlier->left;
    }
    EXPECT_GE(static_cast<int64_t>(known.size()), position);
    known.resize(position);
    return known;
  }

  bool failed() const { return !harness_.engine->failure().ok(); }

  void check_books() {
    const EngineStats stats = harness_.engine->stats();
    EXPECT_GE(stats.sessions_free, 0);
    EXPECT_LE(stats.sessions_free, stats.sessions);
    EXPECT_LE(stats.waiting, 7);
    EXPECT_LE(stats.prefix_bytes, options_.prefix_cache_bytes);
    EXPECT_LE(stats.prefix_bytes, harness_.engine->state_bytes() * stats.sessions_free)
        << "they lie in free slots";
    EXPECT_TRUE(!drained_ || stats.waiting == 0);
    const auto& by_state = stats.slots_by_state;
    EXPECT_EQ(std::accumulate(by_state.begin(), by_state.end(), stats.sessions_free),
              stats.sessions);
    for (const auto& scoring : scorings_) {
      EXPECT_LE(scoring->answers, scoring->chunks);
    }
  }

  // Reads all streams. All calls must end within a bounded number of turns, and every slot must be
  // accounted for.
  void wind_down() {
    for (const auto& call : calls_) call->reads = true;
    if (chance(30)) {  // waiting calls are refused at once, running ones continue
      drained_ = true;
      harness_.engine->drain();
      turn();
      check_books();
    }
    for (int i = 0; i < 5000 && (harness_.engine->active_calls() > 0 || unsettled() || moving_ > 0);
         ++i) {
      harness_.clock.advance(kMs);  // without running calls, nothing else advances the clock
      turn();
    }
    EXPECT_EQ(moving_, 0);
    EXPECT_EQ(harness_.engine->active_calls(), 0);
    EXPECT_FALSE(unsettled());
    for (const auto& scoring : scorings_) {
      EXPECT_EQ(scoring->answers, scoring->chunks);
      for (size_t i = 0; i < scoring->log_probs.size(); ++i) {
        EXPECT_EQ(scoring->log_probs[i], FakeModel::expected_log_prob(scoring->values, i + 1));
      }
    }
    harness_.engine->turn();  // removes expired sessions before the list is read
    SessionPage page;
    harness_.engine->list_sessions("", "", 1000, [&](Result<SessionPage> r) { page = *r; });
    harness_.engine->turn();
    const EngineStats stats = harness_.engine->stats();
    EXPECT_GE(stats.sessions_free + static_cast<int64_t>(page.sessions.size()), stats.sessions)
        << "some may be spare";
    for (const SessionInfo& info : page.sessions) {
      EXPECT_TRUE(info.state == SessionPhase::kNew || info.state == SessionPhase::kIdle);
    }
  }

  bool unsettled() const {
    const auto open = [](const auto& call) { return !call->settled; };
    const auto running = [](const auto& scoring) { return !scoring->over; };
    return std::any_of(calls_.begin(), calls_.end(), open) ||
           std::any_of(scorings_.begin(), scorings_.end(), running);
  }

  std::mt19937_64 random_;
  const int recent_;  // the number of values that a state keeps for penalties
  const EngineOptions options_;
  Harness harness_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Scoring>> scorings_;
  std::map<std::string, std::pair<std::shared_ptr<StateImage>, std::vector<int32_t>>> saved_;
  bool drained_ = false;
  int made_ = 0;    // counts sessions made by moves, for their names
  int moving_ = 0;  // the number of moves that have not ended
};

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(Simulation, RandomCallsOfThousandsOfSeedsKeepEveryInvariant) {
  const bool one = std::getenv("RUNNEL_SIMULATION_SEED") != nullptr;
  const uint64_t first = environment("RUNNEL_SIMULATION_SEED", 0);
  const uint64_t count = one ? 1 : environment("RUNNEL_SIMULATION_SEEDS", 3000);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Simulation(seed).run();
    ASSERT_FALSE(HasFailure()) << "RUNNEL_SIMULATION_SEED=" << seed;
  }
}

}  // namespace
}  // namespace runnel

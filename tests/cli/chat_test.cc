#include "cli/chat.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/fields.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/chat_input.h"
#include "cli/chat_view.h"
#include "server/grpc/wire.h"
#include "tests/base/test_files.h"
#include "tests/cli/fake_server.h"

namespace runnel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

v1::ModelInfo chat_model_info() {
  v1::ModelInfo model = fake_text_model("prose");
  model.mutable_chat()->set_template_name("chat.jinja");
  model.mutable_chat()->set_stop_text("\n\nUser:");
  return model;
}

class ChatTest : public testing::Test {
 protected:
  ChatTest() {
    server_.generate_instead = [this](auto*, auto* writer) { return answer(writer); };
    options_.server.address = server_.address();
    options_.interactive = true;
  }

  // Answers "b" with " To b.", in two parts, and the text that ends an answer.
  grpc::Status answer(grpc::ServerWriter<v1::GenerateResponse>* writer) {
    const v1::GenerateRequest request = server_.last_request();
    start(writer, request.sampling().has_seed() ? request.sampling().seed() : 42);
    const auto& messages = request.conversation().messages();
    write(writer, 0, " To " + messages.rbegin()->content());
    write(writer, 1, ".\n\nUser:");
    v1::GenerateResponse event;
    event.mutable_finished()->set_reason(reason_);
    writer->Write(event);
    return grpc::Status::OK;
  }
  static void start(grpc::ServerWriter<v1::GenerateResponse>* writer, uint64_t seed) {
    v1::GenerateResponse event;
    event.mutable_started()->set_seed(seed);
    writer->Write(event);
  }
  static void write(grpc::ServerWriter<v1::GenerateResponse>* writer, int64_t position,
                    const std::string& text) {
    v1::GenerateResponse event;
    v1::ValueRun& run = *event.mutable_values()->add_runs();
    run.set_position(position);
    run.add_values(1);
    run.add_log_probs(-1);
    run.set_text(text);
    writer->Write(event);
  }

  // Types these lines into the conversation. Returns the exit code.
  int talk(const std::string& lines) { return talk(lines, captured_.console()); }
  int talk(const std::string& lines, Console& console) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    EXPECT_EQ(::write(ends[1], lines.data(), lines.size()), std::ssize(lines));
    close(ends[1]);
    options_.input = ends[0];
    const int code = run_chat(options_, console);
    close(ends[0]);
    return code;
  }
  // The messages of each call, each as "role: content".
  std::vector<std::vector<std::string>> said() const {
    std::vector<std::vector<std::string>> calls;
    for (const v1::GenerateRequest& request : server_.requests()) {
      std::vector<std::string>& call = calls.emplace_back();
      for (const v1::ChatMessage& message : request.conversation().messages()) {
        call.push_back(message.role() + ": " + message.content());
      }
    }
    return calls;
  }
  std::vector<std::string> sessions_of_calls() const {
    std::vector<std::string> names;
    for (const v1::GenerateRequest& request : server_.requests()) {
      names.push_back(request.origin().session());
    }
    return names;
  }

  CapturedConsole captured_;
  FakeServer server_{{chat_model_info()}};
  ChatOptions options_;
  v1::Finished::Reason reason_ = v1::Finished::STOP;
};

TEST_F(ChatTest, ATurnSendsOnlyTheNewMessages) {
  options_.system = "Be brief.";
  ASSERT_EQ(talk("a\n\nb\n"), kExitOk) << captured_.err();
  EXPECT_THAT(said(),
              ElementsAre(ElementsAre("system: Be brief.", "user: a"), ElementsAre("user: b")));
  EXPECT_THAT(sessions_of_calls(), ElementsAre("s-1", "s-1"));
  EXPECT_EQ(captured_.out(), "> To a.\n> > To b.\n> \n");
  EXPECT_EQ(captured_.err(), "prose; /help lists the commands\n");
  EXPECT_THAT(server_.sessions, IsEmpty()) << "the session, and the forks for /undo";
}

TEST_F(ChatTest, APipeGetsOnlyTheAnswers) {
  options_.interactive = false;
  options_.sampling.seed = 7;
  options_.max_values = 9;
  reason_ = v1::Finished::LENGTH;
  ASSERT_EQ(talk("a\n/undo"), kExitOk) << captured_.err();
  EXPECT_EQ(captured_.out(), "To a.\nTo /undo.\n");
  EXPECT_EQ(captured_.err(), "");
  EXPECT_EQ(server_.last_request().sampling().seed(), 7);
  EXPECT_EQ(server_.last_request().max_values(), 9);
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(ChatTest, ANamedSessionIsKeptAndContinued) {
  options_.session = "river";
  ASSERT_EQ(talk("a\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("to continue: runnel chat prose --session river\n"));
  EXPECT_THAT(server_.sessions, ElementsAre("river"));
  ASSERT_EQ(talk("b\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("prose, continuing session river; /help"));
  EXPECT_THAT(server_.sessions, ElementsAre("river"));
  EXPECT_THAT(sessions_of_calls(), ElementsAre("river", "river"));
}

TEST_F(ChatTest, UndoReturnsToTheForkBeforeTheTurn) {
  options_.system = "Be brief.";
  ASSERT_EQ(talk("a\n/undo\nb\n/undo\n/undo\nc\n"), kExitOk) << captured_.err();
  EXPECT_THAT(sessions_of_calls(), ElementsAre("s-1", "fork-1", "fork-2"));
  EXPECT_THAT(said(), ElementsAre(SizeIs(2), SizeIs(2), SizeIs(2))) << "the system's message, too";
  EXPECT_THAT(captured_.err(), HasSubstr("there is nothing to undo\n"));
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(ChatTest, UndoKeepsTheNameOfTheSession) {
  options_.session = "river";
  ASSERT_EQ(talk("a\n/undo\nb\n"), kExitOk) << captured_.err();
  EXPECT_THAT(sessions_of_calls(), ElementsAre("river", "river"));
  EXPECT_THAT(server_.sessions, ElementsAre("river"));
}

TEST_F(ChatTest, TheLastEightTurnsCanBeUndone) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "a\n";
  server_.most_sessions = 10;  // this one, eight forks, and one while a turn starts
  for (int i = 0; i < 8; ++i) lines += "/undo\n";
  ASSERT_EQ(talk(lines + "b\n"), kExitOk) << captured_.err();
  EXPECT_EQ(sessions_of_calls().back(), "fork-3");
  ASSERT_EQ(talk(lines + "/undo\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("there is nothing to undo"));
}

TEST_F(ChatTest, WithoutAFreeStateATurnCannotBeUndone) {
  server_.most_sessions = 1;
  ASSERT_EQ(talk("a\n/undo\n/again\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("the server had no free state"));
  EXPECT_EQ(server_.requests().size(), 1);
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(ChatTest, AgainAsksWithAnotherSeed) {
  ASSERT_EQ(talk("a\n/again\n/again\n"), kExitOk) << captured_.err();
  EXPECT_THAT(said(),
              ElementsAre(ElementsAre("user: a"), ElementsAre("user: a"), ElementsAre("user: a")));
  const auto requests = server_.requests();
  EXPECT_FALSE(requests[0].sampling().has_seed());
  EXPECT_EQ(requests[1].sampling().seed(), 43);
  EXPECT_EQ(requests[2].sampling().seed(), 44);
  EXPECT_THAT(sessions_of_calls(), ElementsAre("s-1", "fork-1", "fork-2"));
}

TEST_F(ChatTest, ForkAndSaveKeepTheConversation) {
  const TestFolder folder;
  ASSERT_EQ(talk("a\n/fork other\n/save " + folder.path("a b") + "\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("to continue it: runnel chat prose --session other\n"));
  EXPECT_THAT(server_.sessions, ElementsAre("other"));
  const auto saved = read_file(folder.path("a b"), 100);
  ASSERT_TRUE(saved.ok()) << captured_.err();
  EXPECT_EQ(*saved, "the state of s-1");
}

TEST_F(ChatTest, SeedAndThinkHoldForTheNextAnswers) {
  ASSERT_EQ(talk("a\n/seed 7\n/think off\nb\n/think on\nc\n"), kExitOk) << captured_.err();
  const auto requests = server_.requests();
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_THAT(requests[0].conversation().variables(), IsEmpty());
  EXPECT_EQ(requests[1].sampling().seed(), 7);
  EXPECT_EQ(requests[1].conversation().variables(0).name(), "enable_thinking");
  EXPECT_FALSE(requests[1].conversation().variables(0).flag());
  EXPECT_TRUE(requests[2].conversation().variables(0).flag());
}

TEST_F(ChatTest, AWrongCommandIsExplained) {
  ASSERT_EQ(talk("/udno\n/fork\n/undo now\n/seed x\n/think hard\n/help\n/quit\na\n"), kExitOk);
  for (const char* const line :
       {"there is no command '/udno'; /help lists them\n", "/fork needs NAME\n",
        "/undo takes no word, and 'now' is one\n", "a seed is a whole number from 0 to",
        "/think needs on or off\n", "  /think on|off  the template's variable enable_thinking\n"}) {
    EXPECT_THAT(captured_.err(), HasSubstr(line));
  }
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(ChatTest, ARefusalSpeaksOfFlags) {
  std::atomic<int> calls = 0;
  server_.generate_instead = [&](auto*, auto* writer) {
    return calls++ > 0 ? answer(writer)
                       : to_grpc(invalid_argument(place_of(fields::kMaxValues) + " is 0"));
  };
  options_.system = "Be brief.";
  ASSERT_EQ(talk("a\n/undo\nb\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("runnel: INVALID_ARGUMENT: --max-values is 0\n"));
  EXPECT_THAT(captured_.err(), HasSubstr("there is nothing to undo\n"));
  EXPECT_EQ(captured_.out(), "> > > To b.\n> \n");
  EXPECT_THAT(said().back(), ElementsAre("system: Be brief.", "user: b"));
  calls = 0;
  options_.interactive = false;
  EXPECT_EQ(talk("a\nb\n"), kExitFailed);
  EXPECT_EQ(calls, 1) << "a pipe ends at the first failure";
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(ChatTest, AModelWithoutATemplateSaysWhy) {
  v1::ModelInfo model = fake_text_model("mute");
  model.mutable_chat()->set_missing("it has no words");
  const FakeServer server({model});
  options_.server.address = server.address();
  EXPECT_EQ(talk("a\n"), kExitUsage);
  EXPECT_EQ(captured_.err(), "runnel: model 'mute' has no chat template: it has no words\n");
}

TEST_F(ChatTest, TextThatIsNotUtf8IsRefused) {
  EXPECT_EQ(talk("ab\xff\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("the message is not valid UTF-8 at byte 2"));
  options_.system = "\xc3";
  EXPECT_EQ(talk("a\n"), kExitUsage);
  EXPECT_THAT(captured_.err(), HasSubstr("--system is not valid UTF-8 at byte 0"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(ChatTest, AMessageThatNoServerReadsIsRefused) {
  const TestFolder folder;
  const std::string path = folder.write("zeros", "");
  std::filesystem::resize_file(path, limits::kMessageBytes.max + (1 << 20));
  options_.interactive = false;
  options_.input = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(run_chat(options_, captured_.console()), kExitFailed);
  EXPECT_LT(lseek(options_.input, 0, SEEK_CUR), limits::kMessageBytes.max + (1 << 20));
  close(options_.input);
  EXPECT_THAT(captured_.err(), HasSubstr("the message has more than 67,108,864 bytes"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(ChatTest, ALongAnswerSaysThatItIsCut) {
  reason_ = v1::Finished::LENGTH;
  ASSERT_EQ(talk("a\n"), kExitOk);
  EXPECT_THAT(captured_.err(), HasSubstr("(cut after 2 values; --max-values)\n"));
}

// A signal interrupts the conversation once `out` has everything that the server has sent.
class InterruptedChatTest : public ChatTest {
 protected:
  // The first answer never ends. `signal` arrives after its first words.
  void interrupt_first(int signal) {
    server_.generate_instead = [this, signal](grpc::ServerContext* context, auto* writer) {
      if (calls_++ > 0) return answer(writer);
      start(writer, 1);
      write(writer, 0, "Half of");
      EXPECT_TRUE(text_.comes_to_have("Half of"));
      kill(getpid(), signal);
      wait_until_cancelled(*context);
      return grpc::Status(grpc::StatusCode::CANCELLED, "");
    };
  }

  std::atomic<int> calls_ = 0;
  WatchedText text_;
  std::ostream out_{&text_};
  std::ostringstream err_;
  Console console_{.out = out_, .err = err_};
};

TEST_F(InterruptedChatTest, TheConversationContinuesAfterTheAnswer) {
  interrupt_first(SIGINT);
  ASSERT_EQ(talk("a\nb\n/undo\n/undo\n", console_), kExitOk) << err_.str();
  EXPECT_EQ(text_.str(), "> Half of\n> To b.\n> > > \n");
  EXPECT_EQ(err_.str(), "prose; /help lists the commands\n");
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(InterruptedChatTest, SigtermEndsTheProgram) {
  interrupt_first(SIGTERM);
  EXPECT_EQ(talk("a\nb\n", console_), kExitInterrupted);
  EXPECT_EQ(calls_, 1);
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(InterruptedChatTest, InAPipeTheFirstInterruptEndsTheProgram) {
  options_.interactive = false;
  interrupt_first(SIGINT);
  EXPECT_EQ(talk("a\nb\n", console_), kExitInterrupted);
  EXPECT_EQ(err_.str(), "runnel: interrupted\n");
  EXPECT_THAT(server_.sessions, IsEmpty());
}

TEST_F(InterruptedChatTest, AnInterruptBeforeTheFirstPromptEndsTheProgram) {
  server_.before_create = [](const grpc::ServerContext& context) {
    kill(getpid(), SIGINT);
    wait_until_cancelled(context);
  };
  EXPECT_EQ(talk("a\n", console_), kExitInterrupted);
  EXPECT_EQ(err_.str(), "runnel: interrupted\n");
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(InterruptedChatTest, AnInterruptAtThePromptEndsTheProgram) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  options_.input = ends[0];
  std::thread signals([this] {
    EXPECT_TRUE(text_.comes_to_have("> "));
    kill(getpid(), SIGINT);
  });
  EXPECT_EQ(run_chat(options_, console_), kExitInterrupted);
  signals.join();
  EXPECT_THAT(server_.sessions, IsEmpty());
  for (const int end : ends) close(end);
}

// The output for an answer that arrives in pieces of this many bytes.
std::string shown(const std::string& text, bool colour, bool thinking, size_t bytes) {
  std::ostringstream out, err;
  Console console{.out = out, .err = err, .out_terminal = colour, .colour = colour};
  ChatView view(console, "\n\nUser:");
  view.begin(thinking);
  for (size_t at = 0; at < text.size(); at += bytes) view.add(text.substr(at, bytes));
  view.end();
  return out.str();
}

TEST(ChatView, ThinkingIsDimWhereThereAreColours) {
  struct Case {
    const char* text;
    bool colour, thinking;
    const char* shown;
  };
  const std::vector<Case> cases = {
      {" <think>\na < b\n</think>\n\nYes, <b>\n", true, false, "\x1b[2ma < b\n\x1b[0mYes, <b>\n"},
      {"<think>a</think>Yes\n\nUser:", true, false, "\x1b[2ma\n\x1b[0mYes\n"},
      {"a</think>Yes", true, true, "\x1b[2ma\n\x1b[0mYes\n"},
      {"a", true, true, "\x1b[2ma\n\x1b[0m"},
      {"<think>\n\n</think>\n\nYes", true, false, "\x1b[2m\x1b[0mYes\n"},
      {"<think>a</think>Yes\n\nUser", false, false, "<think>a</think>Yes\n\nUser\n"},
      {"\n Yes\x1b\n\nUser: No", false, true, "Yes\\x1b\n"},
      {"", true, false, "\n"},
  };
  for (const Case& each : cases) {
    for (const size_t bytes : {1, 2, 5, 100}) {
      EXPECT_EQ(shown(each.text, each.colour, each.thinking, bytes), each.shown) << bytes;
    }
  }
}

TEST(ChatInput, LinesOfAPipeAreMessages) {
  std::array<int, 2> ends{}, interrupt{};
  ASSERT_EQ(pipe(ends.data()) + pipe(interrupt.data()), 0);
  ChatInput input(ends[0], interrupt[0]);
  ASSERT_EQ(write(ends[1], "one\r\n\ntwo", 9), 9);
  EXPECT_EQ(input.next(), "one");
  EXPECT_EQ(input.next(), "");
  close(ends[1]);
  EXPECT_EQ(input.next(), "two") << "the last line has no end";
  EXPECT_EQ(input.next(), std::nullopt);
  for (const int end : {ends[0], interrupt[0], interrupt[1]}) close(end);
}

}  // namespace
}  // namespace runnel

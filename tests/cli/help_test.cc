#include "cli/help.h"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/completion.h"
#include "cli/manual.h"

namespace runnel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// An app with one command, and one with subcommands.
class HelpTest : public testing::Test {
 protected:
  HelpTest() {
    const Command draw = program_.root().command("draw", "Draws a picture's \\ lines: [all]");
    draw.flag("--size,-s", size_, "Its size").shows_default();
    draw.flag("--colour", colour_, "Which").offers({"red", "blue"});
    draw.flag("--grey", grey_, "Without colour; that's all");
    draw.footer(".dots\n'quotes");
    const Command shelf = program_.root().command("shelf", "What is kept");
    shelf.needs_command();
    shelf.command("list", "All of it").flag("what", what_, "Which ones");
    add_help_commands(program_.root(), "1.2.3");
  }
  // The text printed on standard output.
  std::string parse(std::vector<std::string> words) {
    std::ostringstream out, err;
    Console console{.out = out, .err = err};
    exit_code_ = program_.run(std::move(words), console);
    return out.str();
  }
  CommandShape shape() const { return program_.root().shape(); }

  Program program_{"Draws", "1.2.3"};
  int size_ = 7, exit_code_ = -1;
  bool grey_ = false;
  std::string what_, colour_;
};

TEST_F(HelpTest, ShowsTheHelpOfTheGivenCommand) {
  EXPECT_THAT(parse({"help"}), AllOf(HasSubstr("draw"), HasSubstr("shelf")));
  EXPECT_THAT(parse({"help", "draw"}), AllOf(HasSubstr("runnel draw"), HasSubstr("--size")));
  EXPECT_THAT(parse({"help", "shelf", "list"}), HasSubstr("Which ones"));
  EXPECT_EQ(exit_code_, kExitOk);
  EXPECT_EQ(parse({"help", "shelve"}), "");
  EXPECT_EQ(exit_code_, kExitUsage);
}

TEST_F(HelpTest, TheManualPageHasEverythingAsPlainText) {
  const std::string page = man_page(shape(), "1.2.3");
  EXPECT_EQ(parse({"man"}), page);
  EXPECT_THAT(page, AllOf(HasSubstr(".SS runnel draw\nDraws a picture's \\e lines"),
                          HasSubstr("\\fB\\-s, \\-\\-size\\fR \\fIINT\\fR\nIts size (default: 7)"),
                          HasSubstr("\\fB\\-\\-grey\\fR\n"), HasSubstr("\\&.dots\n\\&'quotes"),
                          HasSubstr(".SS runnel shelf list"), HasSubstr("1.2.3")));
}

TEST_F(HelpTest, CompletionHasEveryCommandAndFlag) {
  EXPECT_EQ(parse({"completion", "bash"}), bash_completion(shape()));
  EXPECT_EQ(parse({"completion", "zsh"}), zsh_completion(shape()));
  EXPECT_EQ(parse({"completion", "fish"}), "");
  EXPECT_EQ(exit_code_, kExitUsage);
  EXPECT_THAT(bash_completion(shape()),
              AllOf(HasSubstr("'runnel draw') words='-h --help -s --size --colour --grey' ;;"),
                    HasSubstr("'runnel shelf list') path=$next"),
                    HasSubstr("'runnel draw --colour') words='red blue' ;;"),
                    HasSubstr("'runnel draw -s'|'runnel draw --size') words='' ;;"),
                    HasSubstr("complete -o default -F _runnel runnel\n")));
  EXPECT_THAT(
      zsh_completion(shape()),
      AllOf(HasSubstr("'draw:Draws a picture'\\''s \\\\ lines\\: \\[all\\]'"),
            HasSubstr("'*--size[Its size]:value:_files'"),
            HasSubstr("'*--colour[Which]:value:(red blue)'"), HasSubstr("'*:word:(bash zsh)'"),
            HasSubstr("'*--grey[Without colour; that'\\''s all]'"),
            HasSubstr("_runnel_shelf_list()")));
}

}  // namespace
}  // namespace runnel

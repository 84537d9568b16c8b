"""The programs and commands of the README are run in their order."""

from weights import first_hour


def test_the_readme_is_followed_from_top_to_bottom(tmp_path):
    """Installations, programs and commands in their order."""
    questions, installed = [], []

    def run(program, *arguments, **variables):
        questions.append((program, arguments, variables))
        return "[[('8', 0.91)]]"

    answer, count = first_hour.follow(run, installed.append, "jax", tmp_path)
    assert answer == "[[('8', 0.91)]]"
    assert installed == ["jax"]
    commands = [arguments[0] for program, arguments, _ in questions if program == "keras-vit"]
    assert commands == ["doctor", "predict", "finetune", "evaluate", "info", "convert"]
    assert "KERAS_VIT_BUCKET" in questions[-1][2]
    assert len(installed) + len(questions) == count + 2  # two programs write the files

"""What the server keeps of those who have left."""

from types import SimpleNamespace

import gradio as gr

from tests.widgets import built
from viz.page.sessions import KEPT, Leavers


def test_a_few_sessions_are_kept_after_their_visitors_left_and_no_runs() -> None:
    def build() -> tuple[gr.Blocks, gr.State, gr.State]:
        with gr.Blocks(analytics_enabled=False) as page:
            finished, other = gr.State(None), gr.State(None, delete_callback=deleted.append)
            page.queue()
        return page, finished, other

    deleted: list[object] = []
    page, finished, other = built(build)
    sessions = page.state_holder
    close = Leavers(page).closes_page(finished)
    names = [f"visitor {number}" for number in range(KEPT + 3)]
    for name in names:
        sessions[name][finished._id] = "a run"
        sessions[name][other._id] = name
    for name in names[1:]:
        close(SimpleNamespace(session_hash=name))
        sessions["visitor 1"]  # came back, and is there again and again
    assert set(sessions.session_data) == {"visitor 0", "visitor 1", *names[3:]}
    assert deleted == ["visitor 2"]
    assert sessions["visitor 0"][finished._id] == "a run"  # he has not left
    assert all(finished._id not in sessions[name].state_data for name in names[3:])
    assert sessions[names[-1]][other._id] == names[-1]

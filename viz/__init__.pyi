from .figures.answer_attention import plot_answer_attention as plot_answer_attention
from .figures.answer_importance import plot_answer_importance as plot_answer_importance
from .figures.attention import plot_attention as plot_attention
from .figures.attention_shares import plot_attention_shares as plot_attention_shares
from .figures.head_decisiveness import plot_head_decisiveness as plot_head_decisiveness
from .figures.importance import plot_importance as plot_importance
from .figures.leave_one_out import plot_leave_one_out as plot_leave_one_out
from .figures.logprob_by_order import plot_logprob_by_order as plot_logprob_by_order
from .figures.masks import plot_masks as plot_masks
from .figures.method_positions import plot_method_positions as plot_method_positions
from .figures.next_token_candidates import plot_next_token_candidates as plot_next_token_candidates
from .figures.order_effects import plot_order_effects as plot_order_effects
from .figures.position_map import plot_position_map as plot_position_map
from .figures.position_sweep import plot_position_sweep as plot_position_sweep
from .figures.positions import plot_positions as plot_positions
from .figures.positions_by_order import plot_positions_by_order as plot_positions_by_order
from .figures.query_attention import plot_query_attention as plot_query_attention
from .figures.shuffle import plot_shuffle as plot_shuffle
from .lab.bias_curve import plot_bias_curve as plot_bias_curve
from .lab.clusters import plot_clusters as plot_clusters

__all__: list[str]

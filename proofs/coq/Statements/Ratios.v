(** Ghost beside LAI and LLI, from both sides. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The ratios of the similarities to the last one lie between m l and M l. *)
Definition ratios (R : realFieldType) d n L (V : 'I_n -> trace R d) j (m M : nat -> R) :=
  forall z l, (0 < l < L)%N -> m l * beta (V z) j L <= beta (V z) j l <= M l * beta (V z) j L.

(** LAI and Ghost: the better the decay, the further apart. *)
(* Implements: lai-two-sided *)
Definition lai_two_sided := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j m M,
  (* $m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$ *) ratios L.+1 V j m M ->
  (* $\beta^{(L)} \ge 0$ for every $z$ *) (forall z, 0 <= beta (V z) j L.+1) ->
  (* $\alpha^{(l)} \ge 0$ for $l < L$ *) (forall z l, (0 < l < L.+1)%N -> 0 <= alpha (V z) j l) ->
  \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * (1 - M l)) <= lai L.+1 V j
    - ghost L.+1 V j
  <= \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * (1 - m l)).

(** The error of LAI, relative to LAI, is at most 1 - s. *)
(* Implements: relative-below-one *)
Definition relative_below_one := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j s,
  (* $\alpha^{(l)} \ge 0$ *) (forall z l, (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l) ->
  (* $0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$ *)
  (forall z l, (0 < l <= L.+1)%N -> 0 <= beta (V z) j l <= beta (V z) j L.+1) ->
  (* $s \sum_l \alpha^{(l)} \le \alpha^{(L)}$ for every $z$ *)
  (forall z, s * (\sum_(1 <= l < L.+2) alpha (V z) j l) <= alpha (V z) j L.+1) ->
  `|influence_ghost L.+1 V j - influence_lai L.+1 V j| <= (1 - s) * `|influence_lai L.+1 V j|.

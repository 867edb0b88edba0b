(** Ghost beside LAI and LLI, from both sides. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The ratios of the similarities to the last one lie between m l and M l. *)
Definition ratios (R : realFieldType) d n L (V : 'I_n -> trace R d) j (m M : nat -> R) :=
  forall z l, (0 < l < L)%N -> m l * beta (V z) j L <= beta (V z) j l <= M l * beta (V z) j L.

(** LLI and Ghost. *)
(* Implements: lli-two-sided *)
Definition lli_two_sided := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j m M,
  (* $m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$ *) ratios L.+1 V j m M ->
  (* $\beta^{(L)} \ge 0$ for every $z$ *) (forall z, 0 <= beta (V z) j L.+1) ->
  (* $\alpha^{(l)} \ge 0$ for $l < L$ *) (forall z l, (0 < l < L.+1)%N -> 0 <= alpha (V z) j l) ->
  \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * m l) <= ghost L.+1 V j - lli L.+1 V j
  <= \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * M l).

(** LAI and Ghost: the better the decay, the further apart. *)
(* Implements: lai-two-sided *)
Definition lai_two_sided := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j m M,
  (* $m_l \beta^{(L)} \le \beta^{(l)} \le M_l \beta^{(L)}$ *) ratios L.+1 V j m M ->
  (* $\beta^{(L)} \ge 0$ for every $z$ *) (forall z, 0 <= beta (V z) j L.+1) ->
  (* $\alpha^{(l)} \ge 0$ for $l < L$ *) (forall z l, (0 < l < L.+1)%N -> 0 <= alpha (V z) j l) ->
  \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * (1 - M l)) <= lai L.+1 V j - ghost L.+1 V j
  <= \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+1) alpha (V z) j l * (1 - m l)).

(** The range of Ghost over LAI; m is at most every sample's share of the last layer, written without a quotient. *)
(* Implements: ghost-lai-range *)
Definition ghost_lai_range := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j m,
  (* $\alpha^{(l)} \ge 0$ *) (forall z l, (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l) ->
  (* $0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$ *)
  (forall z l, (0 < l <= L.+1)%N -> 0 <= beta (V z) j l <= beta (V z) j L.+1) ->
  (* LAI is not zero *) lai L.+1 V j != 0 ->
  (* meaning *) (forall z, m * (\sum_(1 <= l < L.+2) alpha (V z) j l) <= alpha (V z) j L.+1) ->
  m * lai L.+1 V j <= ghost L.+1 V j <= lai L.+1 V j /\ m <= ghost L.+1 V j / lai L.+1 V j <= 1.

(** The relative error of LAI is at most one, and below one where the last layer's inputs overlap. *)
(* Implements: relative-below-one *)
Definition relative_below_one := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j m,
  let error := `|influence_ghost L.+1 V j - influence_lai L.+1 V j| / `|influence_lai L.+1 V j| in
  (* $\alpha^{(l)} \ge 0$ *) (forall z l, (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l) ->
  (* $0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$ *)
  (forall z l, (0 < l <= L.+1)%N -> 0 <= beta (V z) j l <= beta (V z) j L.+1) ->
  (* LAI is not zero *) lai L.+1 V j != 0 ->
  (* meaning *) (forall z, m * (\sum_(1 <= l < L.+2) alpha (V z) j l) <= alpha (V z) j L.+1) ->
  [/\ error <= 1 - m, error <= 1
    & (* for the strict sign also $\alpha^{(L)} > 0$ for every $z$ *)
      (forall z, 0 < alpha (V z) j L.+1) -> error < 1].

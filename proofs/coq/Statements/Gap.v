(** Appendix B: the gap between Ghost and LAI, and its conservative bounds. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** The gap of the two influences is minus the sum of the pairs' gaps zeta; for LLI it is minus what lies
    below the last layer. *)
(* Implements: app-epsilon-pair *)
Definition gap_of_pairs := forall (R : ringType) d n L (V : 'I_n -> trace R d) j,
  influence_ghost L.+1 V j - influence_lai L.+1 V j = - (\sum_z zeta L.+1 V j z) /\
  influence_ghost L.+1 V j - influence_lli L.+1 V j
    = - (\sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j l).

(** Bounded activations bound every embedding similarity. *)
(* Implements: bounded-activations *)
Definition bounded_similarity := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j C,
  (* A2 *) A2 L V j C ->
  forall z l, (* meaning *) (0 < l <= L)%N -> `|alpha (V z) j l| <= C ^+ 2.

(** A layer's similarity is at most the decayed product of the last norms. *)
(* Implements: norm-product-bound *)
Definition norm_product_bound := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho,
  (* A1 *) A1 L V j rho ->
  forall z l, (* meaning *) (0 < l <= L)%N ->
    beta (V z) j l <= norm (grad (V z) l) * norm (grad j l) /\
    norm (grad (V z) l) * norm (grad j l) <= rho ^+ (2 * (L - l)) * last_norms L V j z.

(** The gap of one pair is at most the similarities added. *)
(* Implements: zeta-bound *)
Definition zeta_bound := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j C,
  (* A2 *) A2 L V j C ->
  (* A3 *) A3 L V j ->
  forall z, `|zeta L V j z| <= C ^+ 2 * \sum_(1 <= l < L) (beta (V z) j L + beta (V z) j l).

(** The printed conservative bound. *)
(* Implements: app-conservative *)
Definition conservative := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C,
  (* A1 *) A1 L.+1 V j rho ->
  (* A2 *) A2 L.+1 V j C ->
  (* A3 *) A3 L.+1 V j ->
  `|influence_ghost L.+1 V j - influence_lai L.+1 V j|
  <= C ^+ 2 * \sum_z (L%:R * beta (V z) j L.+1 + last_norms L.+1 V j z * \sum_(1 <= l < L.+1) rho ^+ (2 * l)).

(** The conservative bound's sharp form: each layer's similarity lies between 0 and the decayed product of
    norms. *)
(* Implements: conservative-sharp *)
Definition conservative_sharp := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C,
  (* A1 *) A1 L.+1 V j rho ->
  (* A2 *) A2 L.+1 V j C ->
  (* A3 *) A3 L.+1 V j ->
  `|influence_ghost L.+1 V j - influence_lai L.+1 V j|
  <= C ^+ 2 * \sum_z \sum_(1 <= l < L.+1)
       Num.max (beta (V z) j L.+1) (rho ^+ (2 * (L.+1 - l)) * last_norms L.+1 V j z - beta (V z) j L.+1).

(** A1 and A2 alone, with any rho > 0; for LLI the first term drops out. *)
(* Implements: gap-without-alignment *)
Definition gap_without_alignment := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C,
  (* A1 with any $\rho > 0$ *) (0 < rho /\ all_decay L.+1 V j rho) ->
  (* A2 *) A2 L.+1 V j C ->
  let powers := \sum_(1 <= l < L.+1) rho ^+ (2 * l) in
  [/\ `|lai L.+1 V j - ghost L.+1 V j|
      <= C ^+ 2 * (\sum_z (L%:R * `|beta (V z) j L.+1| + last_norms L.+1 V j z * powers))
    & `|lli L.+1 V j - ghost L.+1 V j| <= C ^+ 2 * (\sum_z last_norms L.+1 V j z * powers)].

(** LAI is at least alpha-bar times the summed last similarities. *)
(* Implements: lai-lower-bound *)
Definition lai_lower_bound := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j abar,
  (* $\alpha^{(L)} \ge \bar\alpha > 0$ *) (0 < abar /\ forall z, abar <= alpha (V z) j L.+1) ->
  (* $\sum_{l<L} \alpha^{(l)} \ge 0$ *) (forall z, 0 <= \sum_(1 <= l < L.+1) alpha (V z) j l) ->
  (* $\beta^{(L)} \ge 0$ for every $z$ *) (forall z, 0 <= beta (V z) j L.+1) ->
  abar * (\sum_z beta (V z) j L.+1) <= `|influence_lai L.+1 V j|.

(** The relative conservative bound, with the sum that the printed closed form stands for. *)
(* Implements: app-relative-conservative *)
Definition relative_conservative := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C abar,
  (* A1 *) A1 L.+1 V j rho ->
  (* A2 *) A2 L.+1 V j C ->
  (* A3 *) A3 L.+1 V j ->
  (* $\sum_{l<L} \alpha^{(l)} \ge 0$ *) (forall z, 0 <= \sum_(1 <= l < L.+1) alpha (V z) j l) ->
  (* $\alpha^{(L)} \ge \bar\alpha > 0$ *) (0 < abar /\ forall z, abar <= alpha (V z) j L.+1) ->
  (* $\sum_z \beta^{(L)} > 0$ *) 0 < \sum_z beta (V z) j L.+1 ->
  `|influence_ghost L.+1 V j - influence_lai L.+1 V j| / `|influence_lai L.+1 V j|
  <= C ^+ 2 / abar * (L%:R + (\sum_z last_norms L.+1 V j z) / (\sum_z beta (V z) j L.+1)
                             * (rho ^+ 2 * (1 - rho ^+ (2 * L)) / (1 - rho ^+ 2))).

(** LAI is nearer to Ghost than LLI exactly where the lower layers' part of Ghost is more than half of
    LAI's. *)
(* Implements: lai-nearer-than-lli *)
Definition lai_nearer_than_lli := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j,
  (* $\sum_z \sum_{l<L} \alpha^{(l)} \beta^{(L)} \ne 0$ *)
  (\sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j L.+1 != 0) ->
  (`|lai L.+1 V j - ghost L.+1 V j| < `|lli L.+1 V j - ghost L.+1 V j|)
  = (1 / 2%:R < (\sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j l)
                / (\sum_z \sum_(1 <= l < L.+1) alpha (V z) j l * beta (V z) j L.+1)).

(** Appendix B: the geometric bounds. False of LAI, true of LLI.

    The printed A2 bounds a^(L), too, which no score of L layers reads. What is proved here asks for the
    bounds on a^(0), ..., a^(L-1) alone; what refutes the printed bounds, or meets the assumptions, has the
    last bound as well: it meets A2 for one layer more than it has. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** Alignment that does not grow in size on the way down makes the similarities decay. *)
(* Implements: alignment-decay *)
Definition alignment_decay := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho,
  (* A1 *) A1 L V j rho ->
  (* $|\cos|$ at layer $l$ is at most $|\cos|$ at the last layer *) non_expansive L V j ->
  forall z l, (* meaning *) (0 < l <= L)%N -> `|beta (V z) j l| <= rho ^+ (2 * (L - l)) * `|beta (V z) j L|.

(** What the paper concludes from its variant of A3, with the cosine's sign that it needs. *)
(* Implements: alignment-implies-decay *)
Definition alignment_implies_decay := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho,
  (* A1 *) A1 L V j rho ->
  (* the variant of A3 *) variant L V j ->
  (* a non-negative cosine at the last layer *) (forall z, 0 <= cos (grad (V z) L) (grad j L)) ->
  forall z l, (* meaning *) (0 < l <= L)%N -> beta (V z) j l <= rho ^+ (2 * (L - l)) * beta (V z) j L.

(** The variant of A3, and what it gives, does not follow from A1 to A3: a linear chain of two layers on two
    samples, whose last gradients are orthogonal and whose lower ones are not. *)
(* Implements: non-expansive *)
Definition variant_of_A3 :=
  (forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho,
    (* for the decay also A1 *) A1 L V j rho ->
    (* the variant of A3 *) variant L V j ->
    (* for the decay also a non-negative cosine at the last layer *)
    (forall z, 0 <= cos (grad (V z) L) (grad j L)) ->
    forall z l, (* meaning *) (0 < l <= L)%N -> beta (V z) j l <= rho ^+ (2 * (L - l)) * beta (V z) j L) /\
  (forall R : rcfType, exists (d : nat -> nat) (W : forall l, 'M[R]_(d l.+1, d l)) (V : 'I_1 -> trace R d)
    (j : trace R d)
      (rho C : R),
    [/\ linear_chain 2 W j /\ (forall z, linear_chain 2 W (V z)), A1 2 V j rho, A2 3 V j C, A3 2 V j
      & ~ variant 2 V j /\ ~ (forall z, beta (V z) j 1 <= rho ^+ 2 * beta (V z) j 2)]).

(** The printed bound on the gap holds for LLI. *)
(* Implements: lli-gap *)
Definition lli_gap := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C,
  (* A1 *) A1 L.+1 V j rho ->
  (* A2 *) A2 L.+1 V j C ->
  (* $|\cos(g_z^{(l)}, g_j^{(l)})| \le |\cos(g_z^{(L)}, g_j^{(L)})|$ for every $l$ and $z$ *)
  non_expansive L.+1 V j ->
  `|influence_ghost L.+1 V j - influence_lli L.+1 V j|
  <= C ^+ 2 * (\sum_z `|beta (V z) j L.+1|) * \sum_(1 <= l < L.+1) rho ^+ (2 * l).

(** The printed relative bound holds for LLI. *)
(* Implements: lli-relative-gap *)
Definition lli_relative_gap := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j rho C abar,
  (* A1 *) A1 L.+1 V j rho ->
  (* A2 *) A2 L.+1 V j C ->
  (* $|\cos(g_z^{(l)}, g_j^{(l)})| \le |\cos(g_z^{(L)}, g_j^{(L)})|$ for every $l$ and $z$ *)
  non_expansive L.+1 V j ->
  (* $\alpha^{(L)} \ge \bar\alpha > 0$ *) (0 < abar /\ forall z, abar <= alpha (V z) j L.+1) ->
  (* $\beta^{(L)} \ge 0$ for every $z$ *) (forall z, 0 <= beta (V z) j L.+1) ->
  (* LLI is not zero *) lli L.+1 V j != 0 ->
  `|influence_ghost L.+1 V j - influence_lli L.+1 V j| / `|influence_lli L.+1 V j|
  <= C ^+ 2 / abar * \sum_(1 <= l < L.+1) rho ^+ (2 * l).

(** The printed bound is false of LAI: at every depth of two layers or more, for every number of validation
    samples and every rho there is a linear chain, validated on the training sample, that meets all
    assumptions and breaks it. *)
(* Refutes: app-abs-gap *)
Definition printed_bound_fails := forall (R : rcfType) n L (rho : R),
  (* meaning *) 0 < rho < 1 ->
  exists (d : nat -> nat) (W : forall l, 'M[R]_(d l.+1, d l)) (V : 'I_n.+1 -> trace R d) (j : trace R d)
    (C : R),
  [/\ linear_chain L.+2 W j /\ (forall z, V z = j),
      (* A1 *) A1 L.+2 V j rho,
      (* A2 *) A2 L.+3 V j C,
      (* A3 *) A3 L.+2 V j /\ (* the variant of A3 *) variant L.+2 V j
    & C ^+ 2 * (\sum_z beta (V z) j L.+2) * (\sum_(1 <= l < L.+2) rho ^+ (2 * l))
      < `|influence_ghost L.+2 V j - influence_lai L.+2 V j|].

(** The printed relative bound is false of LAI at every depth of two layers or more and every rho up to 1/2;
    and the relative error is no O(rho^2), since it stays above 3/8. *)
(* Refutes: app-rel-gap *)
Definition printed_relative_bound_fails := forall (R : rcfType) n L (rho : R),
  (* meaning *) 0 < rho <= 1 / 2%:R ->
  exists (d : nat -> nat) (W : forall l, 'M[R]_(d l.+1, d l)) (V : 'I_n.+1 -> trace R d) (j : trace R d)
    (C abar : R),
  let error := `|influence_ghost L.+2 V j - influence_lai L.+2 V j| / `|influence_lai L.+2 V j| in
  [/\ linear_chain L.+2 W j /\ (forall z, V z = j),
      (* A1 *) A1 L.+2 V j rho,
      (* A2 *) A2 L.+3 V j C /\ (* A3 *) A3 L.+2 V j,
      (* the variant of A3 *) variant L.+2 V j
        /\ (* $\alpha^{(L)} \ge \bar\alpha > 0$ *) (0 < abar /\ forall z, abar <= alpha (V z) j L.+2)
    & C ^+ 2 / abar * (\sum_(1 <= l < L.+2) rho ^+ (2 * l)) < error /\ 3%:R / 8%:R <= error].

(** The printed sum does not decay with depth: each layer adds to it, at every depth and for every rho. *)
(* Refutes: decays-with-depth *)
Definition sum_grows_with_depth := forall (R : realFieldType) (rho : R) L,
  (* meaning *) 0 < rho < 1 ->
  \sum_(1 <= l < L.+1) rho ^+ (2 * l) < \sum_(1 <= l < L.+2) rho ^+ (2 * l).

(** LAI's relative error tends to a limit that is not 0 as the lower similarities vanish: it is off that limit
    by at most delta times a number that alpha and the last similarities fix. *)
(* Implements: relative-limit *)
Definition relative_limit := forall (R : realFieldType) d n L (V : 'I_n -> trace R d) j delta,
  (* meaning *) (forall z l, (* meaning *) (0 < l <= L)%N ->
    `|beta (V z) j l| <= delta * `|beta (V z) j L.+1|) ->
  (* $\sum_z \beta^{(L)} \sum_l \alpha^{(l)} \ne 0$ *)
  (\sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+2) alpha (V z) j l) != 0) ->
  let last := \sum_z beta (V z) j L.+1 * alpha (V z) j L.+1 in
  let all := \sum_z beta (V z) j L.+1 * (\sum_(1 <= l < L.+2) alpha (V z) j l) in
  `| `|lai L.+1 V j - ghost L.+1 V j| / `|lai L.+1 V j| - `|1 - last / all| |
  <= delta * ((\sum_z \sum_(1 <= l < L.+1) `|alpha (V z) j l * beta (V z) j L.+1|) / `|all|).

(** What the bounds of this appendix assume can be met, all of it together: at every depth of two layers or
    more, for every rho and any number of validation samples, by a linear chain. *)
(* Implements: gradient-norm-decay *)
Definition assumptions_met := forall (R : rcfType) n L (rho : R),
  (* meaning *) 0 < rho < 1 ->
  exists (d : nat -> nat) (W : forall l, 'M[R]_(d l.+1, d l)) (V : 'I_n.+1 -> trace R d) (j : trace R d)
    (C abar : R),
  [/\ linear_chain L.+2 W j /\ (forall z, V z = j),
      (* A1 *) A1 L.+2 V j rho /\ A2 L.+3 V j C,
      [/\ A3 L.+2 V j, variant L.+2 V j & non_expansive L.+2 V j],
      [/\ 0 < abar, forall z, abar <= alpha (V z) j L.+2 & forall z l, (0 < l <= L.+2)%N ->
        0 <= alpha (V z) j l]
    & [/\ forall z l, (0 < l <= L.+2)%N -> 0 <= beta (V z) j l <= beta (V z) j L.+2,
          0 < \sum_z beta (V z) j L.+2, lli L.+2 V j != 0 & lai L.+2 V j != 0]].

(** Appendix C: variances of Ghost and LAI, over any finite law.

    alpha l and c l are numbers; beta l is a random variable, the gradient similarity of layer l, l = 0, ...,
    L; the last one is the signal. One validation sample, as in the paper. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Export Laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Parts.
Variables (R : ringType) (W : Type) (L : nat) (alpha c : 'I_L.+1 -> R) (beta : 'I_L.+1 -> W -> R).
Definition signal := beta ord_max.
Definition gain_sum := \sum_l alpha l * c l.
Definition remainder l w := beta l w - c l * signal w.
Definition noise w := \sum_l alpha l * remainder l w.
Definition ghost w := - \sum_l alpha l * beta l w.
Definition lai w := - ((\sum_l alpha l) * signal w).
End Parts.

(** Ghost is signal plus noise, and its variance has three terms. *)
(* Implements: app-var-exact *)
Definition variance_of_ghost := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  var P (ghost alpha beta) = gain_sum alpha c ^+ 2 * var P (signal beta) + var P (noise alpha c beta)
    + 2%:R * gain_sum alpha c * cov P (signal beta) (noise alpha c beta).

(** The variance of the noise. *)
(* Implements: app-var-eps *)
Definition variance_of_noise := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  var P (noise alpha c beta) = \sum_l alpha l ^+ 2 * var P (remainder c beta l)
    + 2%:R * (\sum_(l < L.+1) \sum_(k < L.+1 | (l < k)%N) alpha l * alpha k * cov P (remainder c beta l)
      (remainder c beta k)).

(** The variance of LAI. *)
(* Implements: app-var-lai *)
Definition variance_of_lai := forall (R : realFieldType) (W : finType) (P : law R W) L alpha
    (beta : 'I_L.+1 -> W -> R),
  var P (lai alpha beta) = (\sum_l alpha l) ^+ 2 * var P (signal beta).

(** The variance of a sum of products whose factors are both random. *)
(* Implements: random-weight-sum *)
Definition random_weights := forall (R : realFieldType) (W : finType) (P : law R W) L
    (alpha beta : 'I_L -> W -> R),
  var P (fun w => \sum_l alpha l w * beta l w)
  = \sum_l \sum_k cov P (fun w => alpha l w * beta l w) (fun w => alpha k w * beta k w).

(** The variance of a sum from below. *)
(* Implements: minkowski-lower-bound *)
Definition minkowski := forall (R : rcfType) (W : finType) (P : law R W) X Y,
  (sd P X - sd P Y) ^+ 2 <= var P (fun w => X w + Y w).

(** The unconditional bound on Ghost's variance. *)
(* Implements: app-var-CS-lb *)
Definition unconditional_bound := forall (R : rcfType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (`|gain_sum alpha c| * sd P (signal beta) - sd P (noise alpha c beta)) ^+ 2 <= var P (ghost alpha beta).

(** The bound under non-negative covariances, with the sign that the printed hypotheses leave out. *)
(* Implements: app-var-corr-lb *)
Definition correlated_bound := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (* $\Cov(\beta^\star, Y) \ge 0$ *) 0 <= cov P (signal beta) (noise alpha c beta) ->
  (* $\sum_l \alpha^{(l)} c_l \ge 0$ *) 0 <= gain_sum alpha c ->
  gain_sum alpha c ^+ 2 * var P (signal beta) + \sum_l alpha l ^+ 2 * var P (remainder c beta l)
    + 2%:R * (\sum_(l < L.+1) \sum_(k < L.+1 | (l < k)%N) alpha l * alpha k * cov P (remainder c beta l)
      (remainder c beta k))
  <= var P (ghost alpha beta).

(** Under the same conditions Ghost varies at least as much as its noise. *)
(* Implements: noise-only-bound *)
Definition noise_only := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (* $\Cov(\beta^\star, Y) \ge 0$ *) 0 <= cov P (signal beta) (noise alpha c beta) ->
  (* $\sum_l \alpha^{(l)} c_l \ge 0$ *) 0 <= gain_sum alpha c ->
  var P (noise alpha c beta) <= var P (ghost alpha beta).

(** The bound holds exactly where the product of gains and covariance is not negative. *)
(* Implements: signed-covariance-bound *)
Definition signed_covariance := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (gain_sum alpha c ^+ 2 * var P (signal beta) + var P (noise alpha c beta) <= var P (ghost alpha beta))
  = (0 <= gain_sum alpha c * cov P (signal beta) (noise alpha c beta)).

(** With gains of one, Ghost is LAI plus noise. *)
(* Implements: unit-gain-variance *)
Definition unit_gains := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (* $c_l = 1$ for every layer *) (forall l, c l = 1) ->
  var P (ghost alpha beta) - var P (lai alpha beta)
    = var P (noise alpha c beta) + 2%:R * (\sum_l alpha l) * cov P (signal beta) (noise alpha c beta) /\
  ((* for the sign also $(\sum_l \alpha^{(l)}) \Cov(\beta^\star, Y) \ge 0$ *)
   0 <= (\sum_l alpha l) * cov P (signal beta) (noise alpha c beta) ->
   0 <= var P (ghost alpha beta) - var P (lai alpha beta)).

(** LAI has the lower variance, under what that needs. *)
(* Implements: lai-lower-variance *)
Definition lai_varies_less := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (* $c_l = 1$ for every layer *) (forall l, c l = 1) ->
  (* $(\sum_l \alpha^{(l)}) \Cov(\beta^\star, Y) \ge 0$ *)
  0 <= (\sum_l alpha l) * cov P (signal beta) (noise alpha c beta) ->
  var P (lai alpha beta) <= var P (ghost alpha beta).

(** LAI has the larger variance where lower similarities spread no more than the last, whatever the
    covariances. *)
(* Implements: variance-order *)
Definition lai_varies_more := forall (R : rcfType) (W : finType) (P : law R W) L alpha
    (beta : 'I_L.+1 -> W -> R),
  (* fixed $\alpha \ge 0$ *) (forall l, 0 <= alpha l) ->
  (* $\sd \beta^{(l)} \le \sd \beta^{(L)}$ for every layer *)
  (forall l, sd P (beta l) <= sd P (signal beta)) ->
  var P (ghost alpha beta) <= var P (lai alpha beta).

(** When LAI's variance is the smaller one. *)
(* Implements: variance-criterion *)
Definition criterion := forall (R : realFieldType) (W : finType) (P : law R W) L alpha c
    (beta : 'I_L.+1 -> W -> R),
  (* $\Cov(\beta^\star, Y) = 0$ *) cov P (signal beta) (noise alpha c beta) = 0 ->
  (var P (lai alpha beta) <= var P (ghost alpha beta))
  = (((\sum_l alpha l) ^+ 2 - gain_sum alpha c ^+ 2) * var P (signal beta) <= var P (noise alpha c beta)).

(** Relative to its mean, LAI varies less; T is what the last gradients are, and the signal is a function of
    it. *)
(* Implements: scale-free-variance *)
Definition scale_free := forall (R : rcfType) (W : finType) (P : law R W) (S : eqType) (T : W -> S) L alpha c
    (beta : 'I_L.+1 -> W -> R) (value : S -> R),
  (* meaning *) (forall w, signal beta w = value (T w)) ->
  (* $\E[\beta^{(l)} \mid g^{(L)}] = c_l \beta^\star$ *)
  (forall l, same_mean_given P T (beta l) (fun w => c l * signal beta w)) ->
  (* both means are not zero *) (mean P (ghost alpha beta) != 0 /\ mean P (lai alpha beta) != 0) ->
  sd P (lai alpha beta) / `|mean P (lai alpha beta)|
    <= sd P (ghost alpha beta) / `|mean P (ghost alpha beta)|.

(** Shares of sources, the step that follows them, whose row a tensor's is, and weights of layers. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Gradients.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Shares.
Variables (R : fieldType) (p K : nat) (size : 'I_K -> nat) (g : forall k, 'I_(size k) -> 'cV[R]_p).
(* The mean gradient of source k; the parameters after a step with shares w; the mean score of source k, with
   v the gradient of the validation loss. *)
Definition source_gradient k := (size k)%:R^-1 *: \sum_(i < size k) g i.
Definition stepped (theta : 'cV_p) eta (D : 'M_p) (w : 'cV_K) :=
  theta - eta *: (D *m \sum_k w k 0 *: source_gradient k).
Definition mean_score (D : 'M_p) (v : 'cV_p) k := (\sum_(i < size k) dot (@g k i) (D *m v)) / (size k)%:R.
End Shares.

(** The derivatives of the next validation loss in the shares of K sources are minus eta times the mean
    scores, with the validation gradient after the step. *)
(* Implements: share-derivative *)
Definition share_derivative := forall (R : realFieldType) p K (size : 'I_K -> nat)
    (g : forall k, 'I_(size k) -> 'cV[R]_p)
    (L : 'cV_p -> R) (theta v : 'cV_p) eta (D : 'M_p) (w : 'cV_K) (step : 'cV_K -> 'cV_p),
  (* the step is $\theta^+ = \theta - \eta D \sum_k w_k g_k$ *)
  (forall u : 'cV_K, step u = theta - eta *: (D *m \sum_k u k 0 *: source_gradient g k)) ->
  (* $D$ is symmetric and fixed *) D^T = D ->
  (* meaning *) gradient L (step w) v ->
  gradient (fun u => L (step u)) w (\col_k (- eta * mean_score g D v k)).

(** The step that makes Hedge's bound least. The inequality holds of any positive number in the place of ln K;
    that the logarithm of K >= 2 is positive is all that is used of it. *)
(* Implements: hedge-step *)
Definition hedge_step := forall (R : rcfType) (lnK H eta : R),
  (* $K \ge 2$ *) 0 < lnK ->
  (* $H > 0$ *) 0 < H ->
  (* meaning *) 0 < eta ->
  let bound x := lnK / x + x * H in
  2%:R * Num.sqrt (H * lnK) <= bound eta /\ bound (Num.sqrt (lnK / H)) = 2%:R * Num.sqrt (H * lnK).

Section Ownership.
Variables (R : fieldType) (n a b : nat) (D : 'I_n -> 'M[R]_(a, b)).
(* All other samples' gradients, one a row; D k is the gradient of loss k at x, and x belongs to sample i. *)
Definition others i : 'M_(n, a * b) := \matrix_(k < n) (if k == i then 0 else mxvec (D k)).
(* Weights from finitely many values, each sample's its own choice. *)
Definition chosen (S : finType) (value : S -> R) (c : {ffun 'I_n -> S}) : 'rV_n := \row_k value (c k).
End Ownership.

(** Two backward passes, one of them with weights, tell whose row x of a tensor is. r and rw w are the
    gradients of the sum of all losses and of their sum with the weights w. What is left of rw w beside w i r
    has the gradients of the other samples' losses alone. First, it is 0 for all weights where the others'
    gradients are 0, and there alone; then r is loss i's gradient; a loss whose gradient is not 0 depends on
    x. Second, the weights for which it is 0 are a subspace, whose codimension is the rank of the others'
    gradients; this rank is positive where one of them is not 0. Third, two weightings that differ in the
    weight of such a sample alone are not both in the subspace, so that of weights from s values, each
    sample's its own choice, at most one in s is in it. Last, it is 0 for equal weights; for weights that
    differ from w i it is not, if a gradient of the others is not 0 and those that are not 0 are linearly
    independent. One in s is what the page's density comes to on a finite grid; that a density has the
    probability 0 needs integrals, and is left out. *)
(* Implements: sample-ownership *)
Definition sample_ownership := forall (R : realFieldType) n a b (loss : 'I_n -> 'M[R]_(a, b) -> R)
    (x : 'M_(a, b)) (dl : 'I_n -> 'M_(a, b)) r (rw : 'rV_n -> 'M_(a, b)) i,
  (* losses are differentiable in the tensor's entries *) (forall k, gradient (loss k) x (dl k)) ->
  (* meaning *) gradient (fun y => \sum_k loss k y) x r ->
  (* meaning *) (forall w : 'rV_n, gradient (fun y => \sum_k w 0 k * loss k y) x (rw w)) ->
  let left w := rw w - w 0 i *: r in
  [/\ forall w, left w = \sum_(k | k != i) (w 0 k - w 0 i) *: dl k,
      r = dl i + \sum_(k | k != i) dl k /\ ((forall w, left w = 0) <-> forall k, k != i -> dl k = 0),
      exists hidden : 'M_n, (\rank hidden + \rank (others dl i))%N = n
                            /\ forall w, (left w == 0) = (w <= hidden)%MS,
      forall k, (* meaning *) k != i -> (* meaning *) dl k != 0 ->
      [/\ ~ (forall y, loss k y = loss k x), (0 < \rank (others dl i))%N,
          forall w w' : 'rV_n, left w = 0 -> left w' = 0 -> (forall l, l != k -> w 0 l = w' 0 l) -> w = w'
        & forall (S : finType) (value : S -> R), injective value ->
          (#|[set c | left (chosen value c) == 0%R]| * #|S| <= #|S| ^ n)%N]
    & (forall c, left (const_mx c) = 0) /\
      (forall (w : 'rV_n) k, (* meaning *) k != i -> (* meaning *) dl k != 0 ->
       (* meaning *) (forall c : 'I_n -> R, \sum_(l | (l != i) && (dl l != 0)) c l *: dl l = 0 ->
                      forall l, l != i -> dl l != 0 -> c l = 0) ->
       (* meaning *) (forall l, l != i -> w 0 l != w 0 i) -> left w != 0)].

Section Slope.
Variables (R : fieldType) (I : finType) (alpha beta last : I -> R).
(* A layer's squared error over all pairs, and the weight that makes it least. *)
Definition misfit w := \sum_z alpha z ^+ 2 * (beta z - w * last z) ^+ 2.
Definition slope := (\sum_z alpha z ^+ 2 * beta z * last z) / \sum_z alpha z ^+ 2 * last z ^+ 2.
End Slope.

(** The weight of one layer: every other one fits worse, by the square of its distance times the
    denominator. *)
(* Implements: calibrated-decoupled *)
Definition decoupled := forall (R : realFieldType) (I : finType) (alpha beta last : I -> R),
  (* the denominator is not zero *) \sum_z alpha z ^+ 2 * last z ^+ 2 != 0 ->
  forall w, misfit alpha beta last w = misfit alpha beta last (slope alpha beta last)
    + (\sum_z alpha z ^+ 2 * last z ^+ 2) * (w - slope alpha beta last) ^+ 2 /\
  (w != slope alpha beta last -> misfit alpha beta last (slope alpha beta last) < misfit alpha beta last w).

Section Updates.
Variables (R : fieldType) (K : nat).
Implicit Types (prior w gain : 'I_K -> R).
(* The factor of the whole mixture, which makes the shares sum to 1. *)
Definition mixed w gain := \sum_i w i * gain i.
Definition moved floor prior w gain k := (1 - floor) * (w k * gain k / mixed w gain) + floor * prior k.
(* The shares start at the prior; an update that observes no source leaves them as they were, and its factors
   are 1. *)
Definition updated floor prior (w gain : nat -> 'I_K -> R) :=
  (forall k, w 0%N k = prior k) /\
  forall t, (forall k, w t.+1 k = moved floor prior (w t) (gain t) k) \/
    (forall k, w t.+1 k = w t k /\ gain t k = 1).
(* What an update takes off the bound: of a sequence that stays with its source, and of one that changes to
   another. *)
Definition price floor prior (source : nat -> 'I_K) t :=
  if source t.+1 == source t then 1 - floor * (1 - prior (source t)) else floor * prior (source t.+1).
End Updates.

(** The product of the mixture's factors over all updates is at least a share of the product along any
    sequence of sources; in particular of that of any one source. The factors are any positive numbers, on the
    page exponentials of gains. *)
(* Implements: mixture-regret *)
Definition mixture_regret := forall (R : realFieldType) K (floor : R) (prior : 'I_K -> R)
    (w gain : nat -> 'I_K -> R),
  (* $\pi_k > 0$ with $\sum_k \pi_k = 1$ *) ((forall k, 0 < prior k) /\ \sum_k prior k = 1) ->
  (* $0 \le f \le 1$ *) 0 <= floor <= 1 ->
  (* meaning *) (forall t k, 0 < gain t k) ->
  (* meaning *) updated floor prior w gain ->
  forall T, let whole := \prod_(t < T.+1) mixed (w t) (gain t) in
  (forall source : nat -> 'I_K, prior (source 0%N) * (\prod_(t < T) price floor prior source t)
     * (\prod_(t < T.+1) gain t (source t)) <= whole) /\
  forall k, prior k * (1 - floor * (1 - prior k)) ^+ T * (\prod_(t < T.+1) gain t k) <= whole.

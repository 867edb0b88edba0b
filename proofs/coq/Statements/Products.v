(** Appendix A: backpropagation as a product of layer Jacobians, and its perturbation.

    Layers are counted from the last one down: d k is the width k layers below it, J k maps the gradient k
    layers below the last to the next one down. Widths are any. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Operators.
Variables (R : ringType) (d : nat -> nat).
Implicit Types J B D : forall k, 'M[R]_(d k.+1, d k).

(* The product of the m Jacobians that follow t, as a map from t to m + t. *)
Fixpoint product J t m : 'M[R]_(d (m + t), d t) :=
  if m is m'.+1 then J (m' + t)%N *m product J t m' else 1%:M.
(* The same from t to k, for t <= k. *)
Definition between J k t : 'M[R]_(d k, d t) := conform_mx 0 (product J t (k - t)).
(* The backward operator: all Jacobians from the last layer to k below it. *)
Definition operator J k : 'M[R]_(d k, d 0) := between J k 0.
Definition plus B D k := B k + D k.
End Operators.

(* A enlarges no vector by more than c: its spectral norm is at most c. *)
Definition gain_le (R : rcfType) m n (A : 'M[R]_(m, n)) c := 0 <= c /\ forall v : 'cV_n,
    norm (A *m v) <= c * norm v.

(** The gradient is the product of the Jacobians times the last gradient. *)
(* Implements: app-A-prod *)
Definition backward_product := forall (R : ringType) d (J : forall k, 'M[R]_(d k.+1, d k))
    (g : forall k, 'cV_(d k)),
  (* a chain of layers *) (forall k, g k.+1 = J k *m g k) ->
  forall k, g k = operator J k *m g 0%N.

(** The perturbation of the product, exactly. *)
(* Implements: telescoping *)
Definition telescoping := forall (R : ringType) d (B D : forall k, 'M[R]_(d k.+1, d k)) k,
  operator (plus B D) k - operator B k = \sum_(t < k) between B k t.+1 *m D t *m operator (plus B D) t.

(** The gradient as signal and noise; dA is the exact difference of the operators. *)
(* Implements: app-g-l-decomp *)
Definition signal_and_noise := forall (R : ringType) d (B J : forall k, 'M[R]_(d k.+1, d k)) k
    (g xi : 'cV_(d 0%N)) dA,
  (* $\Delta A$ is the exact difference *) dA = operator J k - operator B k ->
  operator J k *m (g + xi) = operator B k *m g + operator B k *m xi + dA *m g + dA *m xi.

(** The similarity as a bilinear form of the last gradients. *)
(* Implements: app-M-def *)
Definition bilinear_form := forall (R : comRingType) m n (Az Aj : 'M[R]_(m, n)) (gz gj : 'cV_m)
    (lastz lastj : 'cV_n),
  (* every path from layer $l$ to the loss passes through $s^{(L)}$ *)
  (gz = Az *m lastz /\ gj = Aj *m lastj) ->
  dot gz gj = dot lastz (Az^T *m Aj *m lastj).

(* The remainder's matrix, for a gain c. *)
Definition remainder_matrix (R : ringType) m n (A dAz dAj : 'M[R]_(m, n)) c :=
  (A^T *m A - c%:M) + A^T *m dAj + dAz^T *m A + dAz^T *m dAj.

(** The similarity is gain times signal plus remainder, and the remainder has four terms; for every gain. *)
(* Implements: app-beta-decomp, remainder *)
Definition gain_and_remainder := forall (R : comRingType) m n (A dAz dAj : 'M[R]_(m, n)) c (gz gj : 'cV_n),
  dot ((A + dAz) *m gz) ((A + dAj) *m gj) = c * dot gz gj + dot gz (remainder_matrix A dAz dAj c *m gj).

(** At the last layer the operator is the identity, the gain one and the remainder nothing. *)
(* Implements: app-beta-L *)
Definition last_layer := forall (R : numFieldType) d (J : forall k, 'M[R]_(d k.+1, d k))
    (gz gj : 'cV_(d 0%N)),
  [/\ operator J 0%N = 1%:M, dot (operator J 0%N *m gz) (operator J 0%N *m gj) = dot gz gj,
      (* meaning *) (0 < d 0)%N -> \tr ((operator J 0%N)^T *m operator J 0) / (d 0%N)%:R = 1
    & remainder_matrix (operator J 0%N) 0 0 1 = 0].

(** The norm of the perturbation. *)
(* Implements: perturbation-norm *)
Definition perturbation_norm := forall (R : rcfType) d (B D : forall k, 'M[R]_(d k.+1, d k))
    (rho delta : nat -> R) k,
  (* meaning *) (forall t, gain_le (B t) (rho t)) ->
  (* meaning *) (forall t, gain_le (D t) (delta t)) ->
  gain_le (operator (plus B D) k - operator B k) (\prod_(t < k) (rho t + delta t) - \prod_(t < k) rho t).

(** The trace over the width of the last layer is the gain with the smallest remainder. *)
(* Implements: trace-gain *)
Definition trace_gain := forall (R : rcfType) n (M : 'M[R]_n.+1) c,
  norm (M - (\tr M / n.+1%:R)%:M) <= norm (M - c%:M) /\ \tr (M - (\tr M / n.+1%:R)%:M) = 0.

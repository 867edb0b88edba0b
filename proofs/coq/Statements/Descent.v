(** What the sign of a score decides: one step of SGD on a sample.

    Differentiability is uniform, as in constructive analysis: one t serves all points. On the reals a
    Lipschitz gradient gives it, since |L (x + h) - L x - <dL x, h>| <= lambda |h|^2 / 2; the fields R are the
    Archimedean ones. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* dL is the gradient of L at every point. *)
Definition gradient_of (R : rcfType) p (L : 'cV[R]_p -> R) (dL : 'cV[R]_p -> 'cV[R]_p) :=
  forall e, 0 < e -> exists2 t, 0 < t & forall x h, norm h <= t ->
    `|L (x + h) - L x - dot (dL x) h| <= e * norm h.

Definition lipschitz (R : rcfType) p q (f : 'cV[R]_p -> 'cV[R]_q) lambda :=
  forall x y, norm (f x - f y) <= lambda * norm (x - y).

(** One plain step on sample j changes the validation loss by minus eta times the score, up to lambda eta^2
    |g_j|^2 / 2; a positive score lowers it, a negative one raises it, at all smaller learning rates. *)
(* Implements: descent-meaning *)
Definition descent_meaning := forall (R : rcfType) p (L : 'cV[R]_p -> R) dL theta (g : 'cV[R]_p) lambda eta,
  (* meaning *) Num.archimedean_axiom R ->
  (* meaning *) gradient_of L dL ->
  (* $\nabla L_V$ is $\lambda$-Lipschitz *) lipschitz dL lambda ->
  (* $\eta \ge 0$ *) 0 <= eta ->
  let v := dot (dL theta) g in
  let change := L (theta - eta *: g) - L theta in
  [/\ `|change + eta * v| <= lambda * eta ^+ 2 * norm g ^+ 2 / 2%:R,
      0 < eta -> lambda * norm g ^+ 2 * eta < 2%:R * v -> change < 0
    & 0 < eta -> lambda * norm g ^+ 2 * eta < - (2%:R * v) -> 0 < change].

(** The Shapley values of one step of SGD. *)
From mathcomp Require Import all_ssreflect perm all_algebra.
From LAI.Statements Require Import Networks Descent.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* A quadratic loss with Hessian H and slope b at 0; its gradient at x is H x + b where H is symmetric. *)
Definition quadratic (R : fieldType) p (H : 'M[R]_p) (b x : 'cV_p) := dot x (H *m x) / 2%:R + dot b x.

(* The parameters when j joins: the samples before it, in the order s, have stepped. *)
Definition before (R : ringType) p n eta (theta : 'cV[R]_p) (g : 'I_n -> 'cV_p) (s : 'S_n) j :=
  theta - eta *: (\sum_(i | (s i < s j)%N) g i).

(* The Shapley value of sample j: the mean over all orders of what its step takes off the loss. *)
Definition shapley (R : fieldType) p n (L : 'cV[R]_p -> R) eta theta (g : 'I_n -> 'cV_p) j :=
  (\sum_(s : 'S_n) (L (before eta theta g s j) - L (before eta theta g s j - eta *: g j))) / n`!%:R.

(** For a quadratic it is the midpoint score, times eta. *)
(* Implements: midpoint *)
Definition midpoint := forall (R : realFieldType) p n (H : 'M[R]_p) (b theta : 'cV_p)
    (g : 'I_n -> 'cV_p) eta j,
  (* meaning *) H^T = H ->
  (* meaning *) eta != 0 ->
  shapley (quadratic H b) eta theta g j / eta = dot (g j) (H *m (theta - (eta / 2%:R) *: (\sum_i g i)) + b).

(** The same for any optimizer: F is the loss after its step on a gradient, and without the last samples'
    gradients the step is that on the sum before them (eta = -1, from 0). *)
(* Implements: step-midpoint *)
Definition step_midpoint := forall (R : realFieldType) p n (H : 'M[R]_p) (b : 'cV_p) (g : 'I_n -> 'cV_p) j,
  (* meaning *) H^T = H ->
  shapley (quadratic H b) (-1) 0 g j = - dot (g j) (H *m (2%:R^-1 *: (\sum_i g i)) + b).

(** For a loss whose gradient is Lipschitz, Ghost's score is the Shapley value to first order in eta. *)
(* Implements: shapley-first-order *)
Definition first_order := forall (R : rcfType) p n (L : 'cV[R]_p -> R) dL theta
    (g : 'I_n -> 'cV_p) lambda eta j,
  (* meaning *) Num.archimedean_axiom R ->
  (* meaning *) gradient_of L dL ->
  (* $\nabla L_V$ is $\lambda$-Lipschitz *) lipschitz dL lambda ->
  (* $\eta > 0$ *) 0 < eta ->
  `|shapley L eta theta g j / eta - dot (dL theta) (g j)| <= lambda * eta / 2%:R * norm (g j) *
    (\sum_i norm (g i)).

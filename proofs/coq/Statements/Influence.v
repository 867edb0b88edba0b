(** Sections 3 to 5: influence, its inner product, and what the text says of them. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Gradients Costs.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Eq. 1 and Eq. 2, for validation gradients gz and a training sample's gradient. *)
Definition influence (R : fieldType) n p (H : 'M[R]_p) (gz : 'I_n -> 'cV_p) (gj : 'cV_p) :=
  - \sum_z dot (gz z) (invmx H *m gj).
(* Defines: IP *)
Definition inner_product (R : ringType) n p (gz : 'I_n -> 'cV[R]_p) (gj : 'cV_p) := - \sum_z dot (gz z) gj.

(** Eq. 2 is the slope of the validation loss along a plain step on the sample. *)
(* Implements: IP *)
Definition inner_product_slope := forall (R : realFieldType) n p (loss : 'I_n -> 'cV[R]_p -> R) theta gz gj,
  (* meaning *) (forall z, gradient (loss z) theta (gz z)) ->
  derivative (fun eta => \sum_z loss z (theta - eta *: gj)) 0 (inner_product gz gj).

(** The rule that discards negative values of Eq. 2 discards samples whose small steps lower the validation
    loss, keeps those whose small steps raise it, and discards the validation sample itself. *)
(* Refutes: negative-is-discarded *)
Definition rule_is_reversed := forall (R : realFieldType) n p (loss : 'I_n -> 'cV[R]_p -> R) theta gz gj,
  (* meaning *) (forall z, gradient (loss z) theta (gz z)) ->
  (* the influence has the printed sign *)
  let printed := inner_product gz gj in
  let change eta := \sum_z loss z (theta - eta *: gj) - \sum_z loss z theta in
  [/\ printed < 0 -> exists2 t, 0 < t & forall eta, 0 < eta <= t -> change eta < 0,
      0 < printed -> exists2 t, 0 < t & forall eta, 0 < eta <= t -> 0 < change eta
    & gj != 0 -> inner_product (fun _ : 'I_1 => gj) gj < 0].

(** One forward-mode derivative along the validation gradient is the score. Central differences give it with
    an error of at most M h^2, where the loss along the line is a polynomial of degree 2 up to M |e|^3; the
    coefficient of e need not be known. Bounded third derivatives give such an M by Taylor's formula, which
    needs the reals and is left out. For a quadratic loss M is 0, and so is the error. *)
(* Implements: directional-derivative *)
Definition directional_derivative := forall (R : realFieldType) n p (val : 'I_n -> 'cV[R]_p -> R)
    (loss : 'cV_p -> R) theta gz gj,
  (* meaning *) (forall z, gradient (val z) theta (gz z)) ->
  (* losses are differentiable at $\theta$ *) gradient loss theta gj ->
  let along e := loss (theta + e *: \sum_z gz z) in
  let score := \sum_z dot (gz z) gj in
  derivative along 0 score /\
  forall a1 a2 M t,
  (* meaning *) 0 < t ->
  (* meaning *) (forall e, `|e| <= t -> `|along e - (along 0 + a1 * e + a2 * e ^+ 2)| <= M * `|e| ^+ 3) ->
  forall h, (* meaning *) 0 < `|h| <= t -> `|(along h - along (- h)) / (2%:R * h) - score| <= M * h ^+ 2.

(** A sample's score is the sum over the positions at which its matrix is used; G_V is any validation
    gradient. *)
(* Implements: position-score *)
Definition position_score := forall (R : realFieldType) p q n (W GV : 'M[R]_(p, q)) (A : 'M_(q, n)) f
    (G : 'M_(p, n)),
  (* meaning *) gradient f (W *m A) G ->
  (exists D, gradient (fun X => f (X *m A)) W D) /\
  (forall D, (* meaning *) gradient (fun X => f (X *m A)) W D ->
   \sum_t dot (col t G) (GV *m col t A) = dot GV (\sum_t col t G *m (col t A)^T) /\
   \sum_t dot (col t G) (GV *m col t A) = dot GV D).

(* What offset o of a kernel sees below output position t: an input position, or padding. Any number of
   dimensions, any stride, dilation and padding. *)
Definition seen (R : ringType) c n (x : 'M[R]_(c, n)) a (s : option 'I_n) := if s is Some i then x a i else 0.
Definition convolution (R : ringType) p c k n m (src : 'I_m -> 'I_k -> option 'I_n) (x : 'M[R]_(c, n))
  (K : 'M_(p, c * k)) :=
  \matrix_(i < p, t < m) \sum_a \sum_o (vec_mx (row i K) : 'M_(c, k)) a o * seen x a (src t o).
(* The patch under position t. *)
Definition patch (R : ringType) c k n m (src : 'I_m -> 'I_k -> option 'I_n) (x : 'M[R]_(c, n)) t :
  'cV_(c * k) :=
  (mxvec (\matrix_(a < c, o < k) seen x a (src t o)))^T.

(** A convolution: one matrix on all patches.  The samples' inputs can have different sizes. *)
(* Implements: convolution-gradient *)
Definition convolution_gradient := forall (R : realFieldType) p c k nz nj mz mj
    (srcz : 'I_mz -> 'I_k -> option 'I_nz) (srcj : 'I_mj -> 'I_k -> option 'I_nj)
    (xz : 'M[R]_(c, nz)) (xj : 'M_(c, nj))
    (K : 'M_(p, c * k)) fz fj (Gz : 'M_(p, mz)) (Gj : 'M_(p, mj)),
  (* meaning *) gradient fz (convolution srcz xz K) Gz ->
  (* meaning *) gradient fj (convolution srcj xj K) Gj ->
  [/\ exists Dz, gradient (fun X => fz (convolution srcz xz X)) K Dz,
      exists Dj, gradient (fun X => fj (convolution srcj xj X)) K Dj
    & forall Dz Dj,
      (* the convolution is the only use of its kernel *)
      gradient (fun X => fz (convolution srcz xz X)) K Dz ->
      (* the convolution is the only use of its kernel *)
      gradient (fun X => fj (convolution srcj xj X)) K Dj ->
      dot Dz Dj = \sum_t \sum_u dot (patch srcz xz t) (patch srcj xj u) * dot (col t Gz) (col u Gj)].

(** Where s is the output of the activation function phi, the product over layers is off by the slopes of phi:
    the case of one unit. *)
(* Implements: neglecting-activations *)
Definition post_activation := forall (R : realFieldType) (phi fz fj : R -> R) w az aj sz sj gz gj,
  (* meaning *) (derivative phi (w * az) sz /\ derivative phi (w * aj) sj) ->
  (* meaning *) (derivative fz (phi (w * az)) gz /\ derivative fj (phi (w * aj)) gj) ->
  [/\ exists G, derivative (fun x => fz (phi (x * az))) w G,
      exists G, derivative (fun x => fj (phi (x * aj))) w G
    & forall Gz Gj, (* meaning *) derivative (fun x => fz (phi (x * az))) w Gz ->
      (* meaning *)
      derivative (fun x => fj (phi (x * aj))) w Gj -> Gz * Gj = sz * sj * ((az * aj) * (gz * gj))].

(* The inputs of L layers one after the other, and how many numbers they are. *)
Fixpoint inputs_size (d : nat -> nat) L := if L is k.+1 then (inputs_size d k + d k)%N else 0%N.
Fixpoint inputs (R : ringType) d (x : trace R d) L : 'cV[R]_(inputs_size d L) :=
  if L is k.+1 return 'cV[R]_(inputs_size d L) then col_mx (inputs x k) (act x k) else 0.

(** LAI needs two vectors of a validation sample: the last gradient and the inputs of all layers, which are as
    many numbers as `lai_cache` says. *)
(* Implements: validation-cache *)
Definition two_vectors := forall (R : comRingType) d n L (V : 'I_n -> trace R d) (j : trace R d),
  lai L V j = \sum_z dot (inputs (V z) L) (inputs j L) * dot (grad (V z) L) (grad j L) /\
  (inputs_size d L + d L)%N = lai_cache L d.

(** A sample of a batch that validates itself votes for itself; only the others can remove it. *)
(* Implements: self-influence *)
Definition own_vote := forall (R : rcfType) p n (g : 'I_n -> 'cV[R]_p) j,
  let others := \sum_(z | z != j) dot (g z) (g j) in
  [/\ \sum_z dot (g z) (g j) = norm (g j) ^+ 2 + others, 0 <= norm (g j) ^+ 2
    & \sum_z dot (g z) (g j) < 0 -> others < 0].

(** Under A3 and similarities of inputs that are not negative, no score is negative. *)
(* Implements: non-negative-alignment *)
Definition one_sign := forall (R : rcfType) d n L (V : 'I_n -> trace R d) j,
  (* A3 *) A3 L.+1 V j ->
  (* for one sign of all scores also $\alpha^{(l)} \ge 0$ *)
  (forall z l, (0 < l <= L.+1)%N -> 0 <= alpha (V z) j l) ->
  [/\ 0 <= ghost L.+1 V j, 0 <= lai L.+1 V j & 0 <= lli L.+1 V j].

(* Half the squared distance of a parameter from a number. *)
Definition half_square (R : fieldType) (c : R) (x : 'cV[R]_1) := (x 0 0 - c) ^+ 2 / 2%:R.

(** The printed influence is no estimate of a removal's effect: the smallest case. Trained on 0 and 2,
    validated on 0, the minimisers of the risk in which sample j counts 1 - e change the validation loss at
    minus the printed rate, and removal itself, e = 1, raises the loss where the printed value is negative,
    and lowers it where it is positive. *)
(* Refutes: influence *)
Definition printed_sign_is_wrong := forall (R : realFieldType),
  let data (j : 'I_2) : R := if j == ord0 then 0 else 2%:R in
  let risk e j x := \sum_i half_square (data i) x - e * half_square (data j) x in
  exists (theta : 'cV[R]_1) (H : 'M[R]_1) (g : 'I_2 -> 'cV[R]_1) (path : 'I_2 -> R -> 'cV[R]_1),
  let printed j := influence H (fun _ : 'I_1 => g ord0) (g j) in
  [/\ (* $\hat\theta$ is stationary *)
      (forall x, gradient (fun y => \sum_i half_square (data i) y) x (H *m (x - theta)))
      /\ (* $H$ is invertible *) H \in unitmx,
      forall j, gradient (half_square (data j)) theta (g j),
      (* $z_j$ is down-weighted *)
      forall j, path j 0 = theta /\ forall e x, e <= 1 -> risk e j (path j e) <= risk e j x,
      forall j, derivative (fun e => half_square 0 (path j e)) 0 (- printed j)
    & [/\ printed ord0 < 0, half_square 0 theta < half_square 0 (path ord0 1),
          0 < printed ord_max & half_square 0 (path ord_max 1) < half_square 0 theta]].

(** The first-order effect of removal. Any continuous path of stationary points of the risk in which sample j
    counts 1 - e has the velocity H^-1 g_j at e = 0, and the validation loss along it the derivative that is
    stated. The path is given: that one exists for small e is the implicit function theorem, which needs a
    complete field and continuous second derivatives; of quadratic losses `removal_of_quadratics` concludes
    it. Of the path nothing is asked but that it is continuous at 0 and, near 0, stationary; it need not be of
    minimisers. *)
(* Implements: removal-influence *)
Definition removal := forall (R : realFieldType) n m p (loss : 'I_n -> 'cV[R]_p -> R)
    (dl : 'I_n -> 'cV_p -> 'cV_p)
    (hess : 'I_n -> 'M_p) (val : 'I_m -> 'cV_p -> R) gz theta j (path : R -> 'cV_p),
  (* meaning *) (forall z, gradient (val z) theta (gz z)) ->
  (* losses are twice differentiable *)
  (forall i, (forall x, gradient (loss i) x (dl i x)) /\ jacobian (dl i) theta (hess i)) ->
  (* $\hat\theta$ is stationary *) \sum_i dl i theta = 0 ->
  (* $H$ is invertible *) \sum_i hess i \in unitmx ->
  (* meaning *) (path 0 = theta /\ continuous path 0) ->
  (* to first order *)
  (exists2 r, 0 < r & forall e, `|e| <= r -> gradient (fun x => \sum_i loss i x - e * loss j x) (path e) 0) ->
  velocity path 0 (invmx (\sum_i hess i) *m dl j theta) /\
  derivative (fun e => \sum_z val z (path e)) 0 (\sum_z dot (gz z) (invmx (\sum_i hess i) *m dl j theta)).

(** Of quadratic losses the path exists, and is the only one: for small e the risk in which sample j
    counts 1 - e has one stationary point. *)
(* Implements: removal-influence *)
Definition removal_of_quadratics := forall (R : realFieldType) n m p (loss : 'I_n -> 'cV[R]_p -> R)
    (hess : 'I_n -> 'M_p) (b : 'I_n -> 'cV_p) (val : 'I_m -> 'cV_p -> R) gz theta j,
  let slope i x := hess i *m x + b i in
  (* meaning *) (forall z, gradient (val z) theta (gz z)) ->
  (* losses are twice differentiable *) (forall i x, gradient (loss i) x (slope i x)) ->
  (* $\hat\theta$ is stationary *) \sum_i slope i theta = 0 ->
  (* $H$ is invertible *) \sum_i hess i \in unitmx ->
  let influence := invmx (\sum_i hess i) *m slope j theta in
  exists (path : R -> 'cV_p),
  [/\ path 0 = theta /\ continuous path 0,
      exists2 r, 0 < r & forall e, `|e| <= r ->
        forall x, gradient (fun y => \sum_i loss i y - e * loss j y) x 0 <-> x = path e,
      velocity path 0 influence
    & (* to first order *) derivative (fun e => \sum_z val z (path e)) 0 (\sum_z dot (gz z) influence)].
